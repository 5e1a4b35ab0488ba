"""Edgeflock on 64-bit Arm: a Debian in a folder, run by qemu, with what a Raspberry Pi tells of itself.

By hand, as root, on Debian or Ubuntu (docs/install.md says what it takes):

    apt-get install mmdebstrap qemu-user-static binfmt-support arch-test
    python -m pytest -m arm -n 0 -s tests/arm
"""
