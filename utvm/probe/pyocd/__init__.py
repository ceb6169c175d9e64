# SPDX-License-Identifier: Apache-2.0
"""pyOCD as a driver of probes, for chips that OpenOCD does not know and hosts where it is hard to get.

server.py   its GDB server as a process of ours
client.py   our client, which lets the core run so that memory can be reached meanwhile
inside.py   main program of its Python
"""
