# SPDX-License-Identifier: Apache-2.0
"""The wire form of messages, field by field, for contents that must not be copied on their way.

Client and server share it. Source: Protocol Buffers, "Encoding".
"""
