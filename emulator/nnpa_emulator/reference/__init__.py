# SPDX-License-Identifier: Apache-2.0
"""Every kernel once in NumPy, written to be read: the definition of its arithmetic, bit by bit.

A reference has the arguments of the compiled kernel that is proven equal to it; scratch memory
among them is left alone. Machines without Numba run on references.
"""
