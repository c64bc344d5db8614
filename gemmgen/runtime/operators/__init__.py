"""Launchers as operators of torch: `torch.ops.<package>.<kernel>`."""
