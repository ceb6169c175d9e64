# SPDX-License-Identifier: Apache-2.0
"""pyOCD as a probe driver, for chips without OpenOCD support and hosts without OpenOCD.

server.py   runs its GDB server
client.py   GDB client that accesses memory while the core runs
inside.py   main program of its Python
"""
