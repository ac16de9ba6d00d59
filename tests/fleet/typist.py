"""A user of the lab's hosts beside the lab's own: sudo, su and SSH want passwords of it."""

from __future__ import annotations

SUDO, ROOT_OWN, SSH = "of-sudo-5d1f77c2", "of-root-5d1f77c2", "of-ssh-5d1f77c2"
MARK = b"5d1f77c2"
# An operator beside the lab's own user: may use sudo with a password, and log in with one.
PREPARE = f"""
id typist >/dev/null 2>&1 || useradd --create-home --shell /bin/bash typist
printf 'typist ALL=(ALL:ALL) ALL\\n' >/etc/sudoers.d/typist
install -d -o typist -m 0700 /home/typist/.ssh
install -o typist -m 0600 ~spark/.ssh/authorized_keys /home/typist/.ssh/authorized_keys
printf 'Match User typist\\n\\tPasswordAuthentication yes\\n' >/etc/ssh/sshd_config.d/00-typist.conf
systemctl reload ssh
printf 'root:{ROOT_OWN}\\ntypist:{SUDO}\\n' | chpasswd
"""
CLEAR = "rm -f /etc/sudoers.d/typist /etc/ssh/sshd_config.d/00-typist.conf; systemctl reload ssh; userdel -rf typist"
