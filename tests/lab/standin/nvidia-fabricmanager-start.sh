#!/bin/bash
# LAB STAND-IN for NVIDIA's nvidia-fabricmanager-start.sh @VERSION@: same steps, on the labelled trees of the lab.
# On machines with fourth-generation NVSwitch: find the bridge functions by their VPD, ask for ib_umad, start nvlsm,
# then nv-fabricmanager with the port's GUID.
set -eu
mode=
[ "${1:-}" = --mode ] && mode=${2:-}
bridges=$(grep -lx SW_MNG /sys/class/infiniband/*/lab-vpd-smdl 2>/dev/null || true)

if [ -n "$bridges" ] && [ ! -d /sys/module/ib_umad ]; then
  echo 'Kernel module "ib_umad" has not been loaded, fabric manager cannot be started' >&2
  echo 'Please run "modprobe ib_umad" before starting fabric manager' >&2
  exit 1
fi
case $mode in
precheck) exit 0 ;;
start) ;;
*) echo "usage: $0 --mode precheck|start" >&2; exit 2 ;;
esac

run=/var/run/nvidia-fabricmanager
mkdir -p $run
guid=()
if [ -n "$bridges" ]; then
  echo "Detected NVL5+ system (LAB STAND-IN)"
  [ -x /opt/nvidia/nvlsm/sbin/nvlsm ] || { echo "nvlsm is not installed (LAB STAND-IN)" >&2; exit 1; }
  first=$(echo "$bridges" | head -n 1)
  guid=(-g "$(cat "$(dirname "$first")/ports/1/port_guid")")
  /opt/nvidia/nvlsm/sbin/nvlsm -F /usr/share/nvidia/nvlsm/nvlsm.conf -B "${guid[@]}" --pid_file $run/nvlsm.pid
else
  echo "Detected Pre-NVL5 system (LAB STAND-IN)"
fi
exec /usr/bin/nv-fabricmanager -c /usr/share/nvidia/nvswitch/fabricmanager.cfg "${guid[@]}"
