"""A user-data without a fault, for tests that change one thing in it."""

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f ops@example"
HASH = "$6$abcdefghijklmnop$" + "0123456789" * 8 + "abcdef"

GOOD = f"""\
#cloud-config
write_files:
  - path: /run/hello
    permissions: "0755"
    content: |
      #!/bin/sh
      echo hello
autoinstall:
  version: 1
  locale: en_US.UTF-8
  refresh-installer: {{update: false}}
  keyboard: {{layout: us}}
  source: {{id: ubuntu-server-minimal, search_drivers: false}}
  drivers: {{install: false}}
  oem: {{install: false}}
  codecs: {{install: false}}
  network:
    version: 2
    ethernets:
      mgmt0:
        match: {{macaddress: "02:00:00:00:01:00"}}
        set-name: mgmt0
        dhcp4: true
        dhcp-identifier: mac
      mgmt1:
        match: {{macaddress: "02:00:00:00:01:09"}}
        set-name: mgmt1
    bonds:
      bond0:
        interfaces: [mgmt0, mgmt1]
        parameters: {{mode: 802.3ad, lacp-rate: fast}}
        addresses: ["10.0.0.5/24"]
        nameservers: {{addresses: ["10.0.0.1"]}}
        routes: [{{to: default, via: "10.0.0.1"}}]
  apt:
    fallback: abort
    geoip: false
    preserve_sources_list: false
    mirror-selection: {{primary: [{{uri: "http://archive.lab:8080/"}}]}}
    disable_suites: [security, updates]
    preferences: [{{package: "linux-*", pin: "version 6.8.0-138.138", pin-priority: 1001}}]
  storage:
    swap: {{size: 0}}
    config:
      - {{type: disk, id: disk0, match: {{serial: "*SN-1*"}}, ptable: gpt, wipe: superblock-recursive}}
      - {{type: disk, id: disk1, match: {{serial: "*SN-2*"}}, ptable: gpt, wipe: superblock-recursive}}
      - {{type: partition, id: esp0, device: disk0, size: 1G, flag: boot, grub_device: true}}
      - {{type: partition, id: part0, device: disk0, size: -1}}
      - {{type: partition, id: part1, device: disk1, size: -1}}
      - {{type: format, id: espfs, volume: esp0, fstype: fat32}}
      - {{type: raid, id: md0, name: md0, raidlevel: raid1, devices: [part0, part1]}}
      - {{type: format, id: rootfs, volume: md0, fstype: ext4, label: root}}
      - {{type: mount, id: rootmount, device: rootfs, path: /}}
      - {{type: mount, id: espmount, device: espfs, path: /boot/efi}}
  identity:
    hostname: n1
    username: ops
    password: '{HASH}'
  ssh:
    install-server: true
    allow-pw: false
    authorized-keys: ['{KEY}']
  kernel: {{package: linux-image-6.8.0-138-generic}}
  packages: [linux-modules-extra-6.8.0-138-generic]
  updates: security
  shutdown: reboot
  reporting:
    bedplate: {{type: webhook, endpoint: "http://10.0.0.1:8080/report/n1", level: INFO}}
  early-commands:
    - [sh, -c, "test -e /sys/class/net"]
  late-commands:
    - curtin in-target -- systemctl enable ssh
    - [curtin, in-target, --, sh, -c, "echo hello > /etc/hello"]
    - curtin in-target -- true > /target/var/x 2>&1
  error-commands:
    - tar -cf /run/logs.tar /var/log/installer || true
  user-data:
    timezone: Etc/UTC
    package_update: false
    ssh_genkeytypes: [ed25519]
    phone_home: {{url: "http://10.0.0.1:8080/phone/n1", post: [hostname, pub_key_ed25519], tries: 3}}
"""
