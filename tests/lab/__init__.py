"""A lab: a small fleet of real Debian hosts on one machine, with a signed apt archive and a registry of its own.

`bedplate lab up|down|status|shell|break` is its command line. Tests and the demo use it as a package (tests/ on
sys.path; pytest does that):

    from lab.lifecycle import down, status, up
    from lab.places import places
    from lab.run import inside, on
    from lab.steps import Steps

    up(places(), Steps(print), nodes=8, fresh=False)       # True: started; False: one ran already and was left alone
    finished = on("ctl", ["bedplate", "check"])            # bedplate.process.Finished: .code .out .err; ProcessFailed
    finished = on("n3", ["dpkg-query", "-W"], check=False, timeout_s=60)    # when check and the code is not 0
    argv = inside("ctl").argv(["bedplate", "rollout", "A"])    # to run it yourself, output streaming
    down(places(), Steps(print), purge=False)

In `ctl` a command finds BEDPLATE_SITE (/var/lib/bedplate/site), ANSIBLE_INVENTORY and ANSIBLE_CONFIG set and the
checkout, read-only, as its working directory; `cwd=` and `environment=` say otherwise. Faults: lab.faults.apply.

What holds:
- Everything listens, and every packet stays, in network namespaces of the lab. Hosts have no way out.
- Everything that runs is in a cgroup of the lab; `up` and `down` find what a killed lab left by it, never by name.
- Builds run in namespaces that end with the process; the cache is renamed into place whole.
- What stands in for something is labelled LAB STAND-IN: the NVIDIA packages (standins.py), enroot (standin/enroot).

BEDPLATE_LAB (default /var/lib/bedplate-lab) chooses another lab beside the first, BEDPLATE_LAB_CACHE lets it share the
trees; BEDPLATE_LAB_MIRROR names another Debian archive than the machine's own.
"""
