"""The reading of machine code in tools/measure/sass_order.py."""

from __future__ import annotations

from tools.measure import sass_order

LISTING = """
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0010*/                   LDSM.16.M88.4 R4, [R2] ;
        /*0020*/               @P0 LDSM.16.MT88.4 R8, [R2+0x10] ;
        /*0030*/                   IADD3 R2, R2, 0x20, RZ ;
        /*0040*/                   HMMA.16816.F32.BF16 R12, R4, R8, R12 ;
        /*0050*/                   LDSM.16.M88.4 R4, [R2] ;
"""


def test_runs_are_in_the_order_of_the_machine_code() -> None:
    assert sass_order.runs(LISTING) == [("ldmatrix", 2), ("mma", 1), ("ldmatrix", 1)]
