#!/bin/sh
# SPDX-License-Identifier: GPL-3.0-or-later
# Runs once, inside the Debian root, and makes it a freshly imaged Spark. Arguments: the packages that one comes with.
# The lab's repository is bound to /run/lab-apt; the files of lab/root are in place already.
set -eu
export DEBIAN_FRONTEND=noninteractive

rm -f /etc/apt/sources.list /etc/apt/sources.list.d/*.list
: >/etc/resolv.conf
rm -f /etc/ssh/ssh_host_* /etc/machine-id /etc/hostname

useradd --create-home --shell /bin/bash spark
chmod 0440 /etc/sudoers.d/spark
install -m 0644 /run/lab-apt/gb10-lab-archive.gpg /usr/share/keyrings/

build=$(mktemp)
echo "deb [signed-by=/usr/share/keyrings/gb10-lab-archive.gpg] copy:/run/lab-apt base main" >"$build"
apt="apt-get -qy -o Dir::Etc::SourceList=$build -o Dir::Etc::SourceParts=/dev/null -o APT::Sandbox::User=root"
$apt update
$apt install --no-install-recommends "$@"
$apt clean
rm "$build"
# A host knows its packages from the start, under the address it will have the repository at.
for list in /var/lib/apt/lists/_run_lab-apt_*; do
	mv "$list" "/var/lib/apt/lists/198.18.7.1:8180_apt_${list#*/_run_lab-apt_}"
done

# Periodic jobs would wake up at random, and all at once when the clock leaps after a snapshot is loaded.
for timer in apt-daily apt-daily-upgrade dpkg-db-backup e2scrub_all fstrim logrotate man-db systemd-tmpfiles-clean; do
	systemctl --root=/ mask --quiet "$timer.timer"
done
