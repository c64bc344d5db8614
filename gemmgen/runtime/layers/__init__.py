"""Launchers as nn.Modules, and the replacement of nn.Linear by them."""

from .replace import replace_linears as replace_linears
