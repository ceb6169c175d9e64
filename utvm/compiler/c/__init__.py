"""C sources: functions printed from lowered TIRx, and the files of a library."""
