# Makes a system of what the packages have installed; $1 is its root file system. Runs when the box is made.
set -e
# Vagrant's well-known key lets it in the first time; it puts one of its own into its place.
chroot "$1" useradd --create-home --shell /bin/bash --password '*' --groups sudo,plugdev,dialout vagrant
chroot "$1" install -d -o vagrant -g vagrant -m 0755 /utvm
chroot "$1" install -d -o vagrant -g vagrant -m 0700 /home/vagrant/.ssh
printf '%s\n' "$UTVM_VAGRANT_KEY" > "$1/home/vagrant/.ssh/authorized_keys"
chroot "$1" chown vagrant:vagrant /home/vagrant/.ssh/authorized_keys
chroot "$1" chmod 0600 /home/vagrant/.ssh/authorized_keys

# Keys and identity are each machine's own.
rm -f "$1"/etc/ssh/ssh_host_* "$1/var/lib/dbus/machine-id"
: > "$1/etc/machine-id"
: > "$1/etc/resolv.conf"

chroot "$1" systemctl --quiet enable systemd-networkd ssh utvm-ssh-keys
# Nothing that works by itself: the machine is as it was locked, and no address is waited for.
chroot "$1" systemctl --quiet mask systemd-networkd-wait-online.service apt-daily.timer apt-daily-upgrade.timer \
    dpkg-db-backup.timer e2scrub_all.timer fstrim.timer
