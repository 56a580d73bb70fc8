"""All methods by name; one file each, next to its paper's equations."""

from comsd.methods.aps import APS
from comsd.methods.base import Method, MethodConfig
from comsd.methods.becl import BeCL
from comsd.methods.cesd import CeSD
from comsd.methods.cic import CIC
from comsd.methods.comsd import ComSD
from comsd.methods.csd import CSD
from comsd.methods.dads import DADS
from comsd.methods.diayn import DIAYN
from comsd.methods.lsd import LSD
from comsd.methods.metra import METRA
from comsd.methods.smm import SMM

METHODS: dict[str, type[Method]] = {
    m.name: m for m in (ComSD, CIC, DIAYN, SMM, APS, BeCL, CeSD, DADS, LSD, CSD, METRA)
}

__all__ = ["METHODS", "Method", "MethodConfig"]
