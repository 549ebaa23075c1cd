# SPDX-License-Identifier: Apache-2.0
"""Several server processes behind one address: `nnpa-server --processes N`."""
