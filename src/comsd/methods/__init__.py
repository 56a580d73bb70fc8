"""All methods by name; one file each, next to its paper's equations."""

from comsd.methods.aps import APS
from comsd.methods.base import Method, MethodConfig
from comsd.methods.becl import BeCL
from comsd.methods.cesd import CeSD
from comsd.methods.cic import CIC
from comsd.methods.comsd import ComSD
from comsd.methods.dads import DADS
from comsd.methods.diayn import DIAYN

METHODS: dict[str, type[Method]] = {m.name: m for m in (ComSD, CIC, DIAYN, DADS, BeCL, APS, CeSD)}

__all__ = ["METHODS", "Method", "MethodConfig"]
