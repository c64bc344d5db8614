"""What the compiler made of a kernel: machine code, spills, loops."""
