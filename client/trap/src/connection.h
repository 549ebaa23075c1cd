/* SPDX-License-Identifier: Apache-2.0
 * A connection to the server for each thread: a plain socket, and memory that both sides share.
 */
#ifndef NNPA_TRAP_CONNECTION_H
#define NNPA_TRAP_CONNECTION_H

#include <stdint.h>

#define MAX_OPERANDS 6
#define MAX_BLOCK 4096U
#define HEAD 64U
#define OPERAND_ENTRY 24U
#define MAX_REQUEST (HEAD + MAX_OPERANDS * OPERAND_ENTRY + MAX_BLOCK)
#define MAX_RESPONSE (HEAD + MAX_BLOCK + 512U)

struct connection {
  int32_t thread;        /* the owner's id; 0 while the slot is being taken */
  int32_t is_busy;       /* between a request and its response */
  int socket;            /* -1 where it is not open */
  int memory;            /* -1 where there is none */
  uint64_t memory_size;
  uint8_t *buffers;      /* request, then response; of this slot for ever */
};

struct response {
  uint64_t general_register_0;
  uint32_t condition_code;
  uint32_t interruption;
  uint64_t address;
  uint32_t block_size;
  uint32_t outputs;
  const uint8_t *block;
  char text[513]; /* why, where the machine refuses; for people */
};

/* Return the connection of this thread, 0 if there is no slot or storage for it. It may have no
 * socket yet. */
struct connection *connection_of_thread(void);

/* Give it memory of at least `size` bytes; the old contents are lost. Returns 0, or -errno. */
long connection_reserve(struct connection *connection, uint64_t size);

/* The place for a request: MAX_REQUEST bytes. */
uint8_t *connection_request(struct connection *connection);

/* Send a request of `size` bytes and await its response. Returns 0, and prints why on standard
 * error, if the server did not answer. */
int connection_exchange(struct connection *connection, uint32_t size, struct response *response,
                        uint64_t address);

/* Forget all connections: this process is a copy of another, to which they belong. */
void connections_forget(void);

#endif
