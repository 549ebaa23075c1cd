# SPDX-License-Identifier: Apache-2.0
"""The attacks, by what they aim at; importing a module enters its rows."""
