# SPDX-License-Identifier: Apache-2.0
"""How calls come and go: interceptor, codec, sockets, logs."""
