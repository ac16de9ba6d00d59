#!/bin/sh
# SPDX-License-Identifier: GPL-3.0-or-later
# Runs once, inside the Debian root, and makes it a freshly imaged Spark. Arguments: the packages that one comes with.
# The lab's repository is bound to /run/lab-apt; the files of lab/root are in place already.
set -eu

rm -f /etc/apt/sources.list /etc/apt/sources.list.d/*.list
: >/etc/resolv.conf
rm -f /etc/ssh/ssh_host_* /etc/machine-id /etc/hostname

useradd --create-home --shell /bin/bash spark
chmod 0440 /etc/sudoers.d/spark
install -m 0644 /run/lab-apt/gb10-lab-archive.gpg /usr/share/keyrings/

sh /run/install.sh "$@"

# Periodic jobs would wake up at random, and all at once when the clock leaps after a snapshot is loaded.
for timer in apt-daily apt-daily-upgrade dpkg-db-backup e2scrub_all fstrim logrotate man-db systemd-tmpfiles-clean; do
	systemctl --root=/ mask --quiet "$timer.timer"
done

# Each reload of systemd starts all its generators, which takes as long as the reload, and tests reload some thousand
# times. These make units for what no host of the lab has: a swap to resume from, a TPM, other partitions, rc.local, units
# and getty on the kernel's command line, SSH over vsock, an offline update.
mkdir -p /etc/systemd/system-generators
for name in debug getty gpt-auto hibernate-resume rc-local run ssh system-update tpm2; do
	ln -s /dev/null "/etc/systemd/system-generators/systemd-$name-generator"
done
