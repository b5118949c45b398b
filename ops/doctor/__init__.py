"""Checks of `ops doctor`: what is wrong with an installation, and how to fix it."""

from ops.doctor.examination import examine
from ops.doctor.finding import DoctorFinding

__all__ = ["DoctorFinding", "examine"]
