# SPDX-License-Identifier: Apache-2.0
# Commands before a board's configuration, one a line.

# Standard output belongs to GDB. Removing the other commands is a second line of defence.
foreach command {exec open socket os.fork load interp package popen aio.pipe4 pipe kill} { catch { rename $command {} } }; rename puts {}; proc puts {args} { echo [lindex $args end] }
gdb_port pipe
telnet_port disabled
tcl_port disabled

# Without these two, OpenOCD returns zeros for a failed access.
gdb_report_data_abort enable
gdb_report_register_access_error enable

# Software breakpoints do not work in flash, and on RISC-V they are traps of the program.
gdb_breakpoint_override hard

# It searches scripts in the current folder, which others may control; then, by -s, in the board's.
cd /
