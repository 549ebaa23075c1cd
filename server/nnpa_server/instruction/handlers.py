# SPDX-License-Identifier: Apache-2.0
"""Register InstructionService: messages over gRPC, frames over plain sockets."""

import grpc
from nnpa.instruction.v1 import instruction_pb2 as pb
from nnpa.instruction.v1.instruction_pb2_grpc import add_InstructionServiceServicer_to_server

from nnpa_server.instruction.frames import Frame, encode_frame
from nnpa_server.instruction.service import InstructionService
from nnpa_server.rpc.methods import Conversation

SERVICE = pb.DESCRIPTOR.services_by_name["InstructionService"].full_name
STREAM = f"/{SERVICE}/IssueStream"


def add_to(server: grpc.Server, service: InstructionService) -> None:
    """Serve InstructionService over gRPC."""
    add_InstructionServiceServicer_to_server(service, server)


def conversation_of(service: InstructionService) -> Conversation:
    """Return IssueStream as a conversation of plain sockets."""
    return Conversation(service.converse, Frame, encode_frame)
