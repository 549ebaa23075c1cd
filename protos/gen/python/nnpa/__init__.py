# SPDX-License-Identifier: Apache-2.0
"""Generated wire code of nnpa: protocol buffers and gRPC stubs, one package per API."""
