/* SPDX-License-Identifier: Apache-2.0
 * Source: z/Architecture Principles of Operation, "Neural Network Processing Assist".
 */
#include "instruction.h"

#include "connection.h"
#include "interruption.h"
#include "linux.h"
#include "settings.h"
#include "statistics.h"
#include "storage.h"
#include "tensors.h"
#include "text.h"

#define QUERY_SIZE 256U
#define UNDEFINED_FUNCTION 255U /* under which codes that no machine has are counted */
#define BLOCK_OFFSET 0U     /* of the parameter block in shared memory */
#define BLOCK_WRITTEN 512U  /* bytes of the block that say everything */

enum interruption_code { NONE = 0, OPERATION = 1, ACCESS = 4, SPECIFICATION = 6, DATA = 7 };

struct issue {
  struct connection *connection;
  uint64_t general_register_0, block_address, address;
  uint32_t block_size;
  int count;
  struct operand operands[MAX_OPERANDS];
  uint64_t offsets[MAX_OPERANDS];
  uint64_t accessible[MAX_OPERANDS];
};

static int is_input(enum role role)
{
  return role < OUTPUT_1;
}

/* Open the connection's memory. A program that closed its descriptor gets another. */
static int reserve(struct connection *connection, uint64_t size, uint64_t address)
{
  if (connection->memory >= 0 && SYS3(NR_FCNTL, connection->memory, 1, 0) == -ERR_BADF)
    connection->memory = -1;
  if (connection_reserve(connection, size) == 0)
    return 1;
  complain("there is no memory to share with the server", address);
  return 0;
}

/* Copy the parameter block as far as it goes into the request. */
static void fetch_block(struct issue *issue, uint8_t *block)
{
  int memory = issue->connection->memory;
  unsigned function = issue->general_register_0 & 0xff;
  uint32_t size = function ? MAX_BLOCK : QUERY_SIZE;
  uint64_t there = storage_fetch(memory, BLOCK_OFFSET, issue->block_address, size);
  if (!function) {
    uint64_t writable = storage_writable(memory, issue->block_address, QUERY_SIZE);
    there = there < writable ? there : writable;
  }
  issue->block_size = (uint32_t)there;
  clear_bytes(block, BLOCK_WRITTEN);
  storage_store(memory, BLOCK_OFFSET, (uint64_t)block, there);
}

/* Lay the operands out in shared memory, as far as they are there. Returns how much they take. */
static uint64_t place_operands(struct issue *issue)
{
  int memory = issue->connection->memory;
  uint64_t end = PAGE;
  for (int i = 0; i < issue->count; i++) {
    const struct operand *operand = &issue->operands[i];
    issue->accessible[i] = is_input(operand->role)
                               ? storage_readable(memory, operand->address, operand->size)
                               : storage_writable(memory, operand->address, operand->size);
    issue->offsets[i] = end;
    end += (issue->accessible[i] + PAGE - 1) & ~(PAGE - 1);
  }
  return end;
}

static void fetch_inputs(struct issue *issue)
{
  int memory = issue->connection->memory;
  for (int i = 0; i < issue->count; i++)
    if (is_input(issue->operands[i].role))
      issue->accessible[i] = storage_fetch(memory, issue->offsets[i],
                                           issue->operands[i].address, issue->accessible[i]);
}

/* Write the request's head and list of operands before the block, which is moved behind them. */
static uint32_t compose(struct issue *issue, uint8_t *request, const uint8_t *block)
{
  clear_bytes(request, HEAD);
  put_number(request, issue->general_register_0, 8);
  put_number(request + 8, issue->block_address, 8);
  put_number(request + 16, issue->block_size, 4);
  put_number(request + 20, (uint64_t)issue->count, 4);
  uint8_t *entry = request + HEAD;
  for (int i = 0; i < issue->count; i++, entry += OPERAND_ENTRY) {
    put_number(entry, issue->operands[i].role, 4);
    put_number(entry + 4, 0, 4);
    put_number(entry + 8, issue->offsets[i], 8);
    put_number(entry + 16, issue->accessible[i], 8);
  }
  copy_bytes(entry, block, issue->block_size);
  return HEAD + (uint32_t)issue->count * OPERAND_ENTRY + issue->block_size;
}

static int store_outputs(const struct issue *issue, const struct response *response)
{
  int memory = issue->connection->memory;
  for (int i = 0; i < issue->count; i++) {
    enum role role = issue->operands[i].role;
    uint32_t bit = role == OUTPUT_1 ? 1 : role == OUTPUT_2 ? 2 : role == SAVE_AREA ? 4 : 0;
    if (response->outputs & bit &&
        !storage_store(memory, issue->offsets[i], issue->operands[i].address,
                       issue->operands[i].size))
      return 0;
  }
  return 1;
}

static void interrupt(struct frame *frame, const struct issue *issue,
                      const struct response *response)
{
  int number = response->interruption == ACCESS ? SIGNAL_SEGV : SIGNAL_ILL;
  if (response->text[0] && (settings.verbose || ends_program(number)))
    complain(response->text, issue->address);
  if (response->interruption == ACCESS) {
    uint64_t missing = response->address;
    int memory = issue->connection->memory;
    int is_there = storage_fetch(memory, BLOCK_OFFSET, missing, 1) == 1;
    interrupt_access(frame, issue->address, missing, is_there);
  } else {
    interrupt_illegal(frame, issue->address);
  }
}

static void finish(struct frame *frame, const struct issue *issue,
                   const struct response *response)
{
  if (response->interruption != NONE) {
    interrupt(frame, issue, response);
    return;
  }
  if (response->text[0] && settings.verbose)
    complain(response->text, issue->address);
  if (response->block_size) {
    uint8_t *block = connection_request(issue->connection);
    copy_bytes(block, response->block, response->block_size);
    SYS4(NR_PWRITE64, issue->connection->memory, block, response->block_size, BLOCK_OFFSET);
    storage_store(issue->connection->memory, BLOCK_OFFSET, issue->block_address,
                  response->block_size);
  }
  if (!store_outputs(issue, response)) {
    complain("an output went away while the instruction ran", issue->address);
    interrupt_illegal(frame, issue->address);
    return;
  }
  frame->registers.gprs[0] = response->general_register_0;
  set_condition_code(frame, response->condition_code);
}

void answer_nnpa(struct frame *frame, uint64_t address)
{
  uint64_t started = now();
  struct issue issue = {.connection = connection_of_thread(), .address = address,
                        .general_register_0 = frame->registers.gprs[0],
                        .block_address = frame->registers.gprs[1]};
  struct response response;
  unsigned function = issue.general_register_0 & 0xff;
  if (!issue.connection)
    complain("there are more threads than connections", address);
  if (!issue.connection || !reserve(issue.connection, PAGE, address)) {
    interrupt_illegal(frame, address);
    return;
  }
  uint8_t *request = connection_request(issue.connection);
  uint8_t *block = issue.connection->buffers + 2 * PAGE; /* where a response comes later */
  fetch_block(&issue, block);
  issue.count = operands_of(function, block, issue.operands);
  if (!reserve(issue.connection, place_operands(&issue), address)) {
    interrupt_illegal(frame, address);
    return;
  }
  fetch_inputs(&issue);
  uint32_t size = compose(&issue, request, block);
  int is_answered = connection_exchange(issue.connection, size, &response, address);
  int is_known = function == 0 || issue.count > 0;
  COUNT(instructions[is_known ? function : UNDEFINED_FUNCTION]);
  __atomic_fetch_add(&statistics.nanoseconds, now() - started, __ATOMIC_RELAXED);
  if (is_answered)
    finish(frame, &issue, &response);
  else
    interrupt_illegal(frame, address);
}
