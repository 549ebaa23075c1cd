/* SPDX-License-Identifier: Apache-2.0 */
/* A host with its own protobuf: both work, before and after each other. */
#include <google/protobuf/struct.pb.h>

#include <cstdio>
#include <string>

extern "C" {
#include "sum.h"
}

static bool protobuf_is_right() {
  google::protobuf::Struct message, back;
  (*message.mutable_fields())["zdnn"].set_number_value(7);
  std::string bytes;
  return message.SerializeToString(&bytes) && back.ParseFromString(bytes) &&
         back.fields().at("zdnn").number_value() == 7;
}

int main() {
  bool right = protobuf_is_right();
  right &= sum_is_right() == 1;
  right &= protobuf_is_right();
  std::puts(right ? "right" : "wrong");
  google::protobuf::ShutdownProtobufLibrary();
  return 0;
}
