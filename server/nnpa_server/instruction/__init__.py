# SPDX-License-Identifier: Apache-2.0
"""nnpa.instruction.v1: the NNPA instruction, over gRPC and in frames over plain sockets."""

from nnpa_server.instruction.handlers import SERVICE, STREAM, add_to, conversation_of
from nnpa_server.instruction.service import InstructionService

__all__ = ["SERVICE", "STREAM", "InstructionService", "add_to", "conversation_of"]
