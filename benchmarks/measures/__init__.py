"""What is measured of one peer, in a process of its own: one file for each."""
