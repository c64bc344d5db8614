"""What kernels in Gluon share: the roles of specialized ones, multiply-adds."""
