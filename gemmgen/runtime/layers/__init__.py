"""Launchers as nn.Modules, and the exchange of torch's own for them."""

from .replace import replace_linears as replace_linears
