# SPDX-License-Identifier: Apache-2.0
"""Files of models, which client, tools and server read in the same way."""
