"""What a node runs to get a file onto its disk whole, and to remove what it needs no more.

It is sent over ssh (bedplate.act.distribution.nodeprogram) and leaves nothing of itself on the node: Python 3.10 and
its standard library, and python3-libtorrent where files come from many peers. It imports nothing of bedplate.

Conversation
- stdin: one line, a JSON object that says what to do (`do`) and of which file; then what the way of moving needs: lines
  with peers, or the bytes of the file. The line `{"end": true}` means: stop, keep what there is.
- stdout: a JSON object a line: `{"have": BYTES}` about every second, at last `{"placed": …}` or `{"failed": WHY}`.
- exit code 0 only if the file is in place, synced; else one of `faults`.

Invariants
- A file under its final name is whole: written under a hidden name beside it, hashed from the disk, synced, made
  read-only, renamed. Killed at any moment, the hidden name stays, and the next transfer goes on from it.
- One transfer at a time on a node, and no garbage collection beside it: the lock is the directory's own.
- What arrives broken is removed, never renamed.
"""
