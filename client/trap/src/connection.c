/* SPDX-License-Identifier: Apache-2.0
 * Source: deploy/docs/wire.md, "Plain sockets"; gRPC-Web, "Message framing".
 */
#include "connection.h"

#include "linux.h"
#include "settings.h"
#include "text.h"

#define SLOTS 4096
#define BUFFERS_SIZE (4 * PAGE)
#define SMALLEST_MEMORY (4UL << 20)
#define FIRST_DESCRIPTOR 700 /* out of the way of programs that close and reuse small ones */
#define PREFIX 5U
#define NO_THREAD 0x7fffffff /* an id that no thread has */
#define METADATA 0x80U

enum file_command { DUPLICATE_ABOVE = 1030, ADD_SEALS = 1033 };
enum { SEAL_SHRINK = 2, MEMORY_FLAGS = 3 /* close on exec, sealing */, NO_SIGNAL = 0x4000 };
enum exchange { DONE, LOST, REFUSED };

struct place { void *bytes; uint64_t size; };
struct socket_message {
  void *name; uint32_t name_size; uint32_t unused;
  struct place *places; uint64_t place_count;
  void *control; uint64_t control_size;
  uint32_t flags; uint32_t unused_too;
};
struct descriptor_message { uint64_t size; uint32_t level, type; int32_t descriptor, unused; };

static struct connection slots[SLOTS];
static uint32_t slots_used;
static int32_t owner; /* the process that the slots belong to */

static void close_both(struct connection *connection)
{
  if (connection->socket >= 0)
    SYS3(NR_CLOSE, connection->socket, 0, 0);
  if (connection->memory >= 0)
    SYS3(NR_CLOSE, connection->memory, 0, 0);
  connection->socket = connection->memory = -1;
  connection->memory_size = 0;
}

void connections_forget(void)
{
  for (uint32_t i = 0; i < slots_used; i++) {
    if (slots[i].buffers)
      close_both(&slots[i]);
    slots[i].is_busy = 0;
    slots[i].thread = NO_THREAD;
  }
  owner = (int32_t)SYS3(NR_GETPID, 0, 0, 0);
}

static int take(struct connection *slot, int32_t expected, int32_t thread)
{
  return __atomic_compare_exchange_n(&slot->thread, &expected, thread, 0, __ATOMIC_ACQ_REL,
                                     __ATOMIC_ACQUIRE);
}

/* Return whether the slot's thread has ended, so that another thread may take its connection. A
 * slot without a thread is being taken right now. */
static int is_left(int32_t process, int32_t holder)
{
  return holder != 0 && SYS3(NR_TGKILL, process, holder, 0) == -ERR_SRCH;
}

/* Find the thread's own slot, else a slot whose thread has ended, else a new slot. */
static struct connection *slot_of(int32_t process, int32_t thread)
{
  uint32_t used = __atomic_load_n(&slots_used, __ATOMIC_ACQUIRE);
  for (uint32_t i = 0; i < used; i++)
    if (__atomic_load_n(&slots[i].thread, __ATOMIC_ACQUIRE) == thread)
      return &slots[i];
  for (uint32_t i = 0; i < used; i++) {
    int32_t holder = __atomic_load_n(&slots[i].thread, __ATOMIC_ACQUIRE);
    if (is_left(process, holder) && take(&slots[i], holder, thread))
      return &slots[i];
  }
  while (used < SLOTS)
    if (__atomic_compare_exchange_n(&slots_used, &used, used + 1, 0, __ATOMIC_ACQ_REL,
                                    __ATOMIC_ACQUIRE)) {
      __atomic_store_n(&slots[used].thread, thread, __ATOMIC_RELEASE);
      return &slots[used];
    }
  return 0;
}

struct connection *connection_of_thread(void)
{
  int32_t process = (int32_t)SYS3(NR_GETPID, 0, 0, 0);
  if (process != owner)
    connections_forget();
  struct connection *slot = slot_of(process, (int32_t)SYS3(NR_GETTID, 0, 0, 0));
  if (!slot)
    return 0;
  if (!slot->buffers) {
    long mapped = system_call_mmap(0, BUFFERS_SIZE, PROT_R | PROT_W, MAP_PRIVATE_ANONYMOUS, -1, 0);
    if (mapped < 0 && mapped > -4096)
      return 0;
    slot->socket = slot->memory = -1;
    slot->buffers = (uint8_t *)mapped;
  }
  if (slot->is_busy) /* its thread was ended in the middle */
    close_both(slot);
  slot->is_busy = 0;
  return slot;
}

static int moved_up(long descriptor)
{
  long high = SYS3(NR_FCNTL, descriptor, DUPLICATE_ABOVE, FIRST_DESCRIPTOR);
  if (high < 0)
    return (int)descriptor;
  SYS3(NR_CLOSE, descriptor, 0, 0);
  return (int)high;
}

long connection_reserve(struct connection *connection, uint64_t size)
{
  if (connection->memory >= 0 && connection->memory_size >= size)
    return 0;
  close_both(connection);
  uint64_t room = SMALLEST_MEMORY;
  while (room < size)
    room *= 2;
  long memory = SYS3(NR_MEMFD_CREATE, "nnpa-trap", MEMORY_FLAGS, 0);
  if (memory < 0)
    return memory;
  connection->memory = moved_up(memory);
  long failed = SYS3(NR_FTRUNCATE, connection->memory, room, 0);
  if (!failed)
    failed = SYS3(NR_FCNTL, connection->memory, ADD_SEALS, SEAL_SHRINK);
  if (failed)
    close_both(connection);
  else
    connection->memory_size = room;
  return failed;
}

uint8_t *connection_request(struct connection *connection)
{
  return connection->buffers + PREFIX;
}

static void set_prefix(uint8_t *frame, uint8_t flags, uint32_t size)
{
  frame[0] = flags;
  put_number(frame + 1, size, 4);
}

static int send_all(int socket, uint8_t *bytes, uint64_t size, const int *descriptor)
{
  struct descriptor_message control = {20, 1, 1, descriptor ? *descriptor : 0, 0};
  while (size) {
    struct place place = {bytes, size};
    struct socket_message message = {
        .places = &place, .place_count = 1,
        .control = descriptor ? &control : 0, .control_size = descriptor ? sizeof control : 0};
    long sent = SYS3(NR_SENDMSG, socket, &message, NO_SIGNAL);
    if (sent == -ERR_INTR)
      continue;
    if (sent <= 0)
      return 0;
    descriptor = 0;
    bytes += sent;
    size -= (uint64_t)sent;
  }
  return 1;
}

static int receive_all(int socket, uint8_t *bytes, uint64_t size)
{
  while (size) {
    long received = SYS3(NR_READ, socket, bytes, size);
    if (received == -ERR_INTR)
      continue;
    if (received <= 0)
      return 0;
    bytes += received;
    size -= (uint64_t)received;
  }
  return 1;
}

static void add_line(struct text *lines, const char *name, const char *value)
{
  text_add(lines, name);
  text_add(lines, ": ");
  text_add(lines, value);
  text_add(lines, "\r\n");
}

static int connect_to_server(struct connection *connection)
{
  struct { uint16_t family; char path[108]; } address = {1, {0}};
  size_t size = length_of(settings.socket);
  if (!size || size >= sizeof address.path)
    return 0;
  copy_bytes(address.path, settings.socket, size);
  long opened = SYS3(NR_SOCKET, 1, 1 | 0x80000, 0);
  if (opened < 0)
    return 0;
  connection->socket = moved_up(opened);
  if (SYS3(NR_CONNECT, connection->socket, &address, sizeof address.family + size + 1) < 0)
    return 0;
  struct text lines = {.size = PREFIX};
  add_line(&lines, ":path", "/nnpa.instruction.v1.InstructionService/IssueStream");
  add_line(&lines, "content-type", "application/grpc+nnpa-frame");
  add_line(&lines, "nnpa-session", settings.session);
  if (settings.token[0]) {
    text_add(&lines, "authorization: Bearer ");
    text_add(&lines, settings.token);
    text_add(&lines, "\r\n");
  }
  set_prefix((uint8_t *)lines.characters, METADATA, (uint32_t)lines.size - PREFIX);
  return send_all(connection->socket, (uint8_t *)lines.characters, lines.size,
                  &connection->memory);
}

/* Return whether metadata contain these characters. */
static int has_line(const uint8_t *metadata, uint32_t size, const char *line)
{
  size_t length = length_of(line);
  for (uint32_t first = 0; first + length <= size; first++) {
    size_t i = 0;
    while (i < length && metadata[first + i] == (uint8_t)line[i])
      i++;
    if (i == length)
      return 1;
  }
  return 0;
}

/* Print the status and the message of metadata as they are, percent-encoded. */
static void complain_of_end(const uint8_t *metadata, uint32_t size, uint64_t address)
{
  struct text words = {.size = 0};
  text_add(&words, "the server ended the call:");
  for (uint32_t first = 0; first < size;) {
    uint32_t end = first;
    while (end < size && metadata[end] != '\r')
      end++;
    if (has_line(metadata + first, end - first, "grpc-status: ") ||
        has_line(metadata + first, end - first, "grpc-message: ")) {
      text_add(&words, " ");
      text_add_bytes(&words, (const char *)metadata + first, end - first);
    }
    first = end + 2;
  }
  words.characters[words.size < 700 ? words.size : 700] = 0;
  complain(words.characters, address);
}

static enum exchange receive(struct connection *connection, struct response *response,
                             uint64_t address)
{
  uint8_t prefix[PREFIX];
  uint8_t *message = connection->buffers + 2 * PAGE;
  if (!receive_all(connection->socket, prefix, PREFIX))
    return LOST;
  uint32_t size = (uint32_t)number_at(prefix + 1, 4);
  if (size > BUFFERS_SIZE - 2 * PAGE) {
    complain("the server sent a frame that is too long", address);
    return REFUSED;
  }
  if (!receive_all(connection->socket, message, size))
    return LOST;
  if (prefix[0] & METADATA) {
    if (has_line(message, size, "grpc-status: 1\r\n"))
      return LOST;
    complain_of_end(message, size, address);
    return REFUSED;
  }
  *response = (struct response){
      .general_register_0 = number_at(message, 8),
      .condition_code = (uint32_t)number_at(message + 8, 4),
      .interruption = (uint32_t)number_at(message + 12, 4),
      .address = number_at(message + 16, 8),
      .block_size = (uint32_t)number_at(message + 24, 4),
      .outputs = (uint32_t)number_at(message + 32, 4),
      .block = message + HEAD};
  uint32_t text_size = (uint32_t)number_at(message + 28, 4);
  if (size < HEAD || response->block_size > MAX_BLOCK || text_size > 512 ||
      HEAD + response->block_size + text_size != size) {
    complain("the server sent a response of a wrong length", address);
    return REFUSED;
  }
  copy_bytes(response->text, message + HEAD + response->block_size, text_size);
  response->text[text_size] = 0;
  return DONE;
}

static enum exchange attempt(struct connection *connection, uint32_t size,
                             struct response *response, uint64_t address)
{
  if (connection->socket < 0 && !connect_to_server(connection))
    return LOST;
  set_prefix(connection->buffers, 0, size);
  if (!send_all(connection->socket, connection->buffers, PREFIX + size, 0)) {
    /* The server ended the call before: its reason may wait to be read. */
    enum exchange end = receive(connection, response, address);
    return end == DONE ? LOST : end;
  }
  return receive(connection, response, address);
}

int connection_exchange(struct connection *connection, uint32_t size, struct response *response,
                        uint64_t address)
{
  int was_open = connection->socket >= 0;
  connection->is_busy = 1;
  enum exchange end = attempt(connection, size, response, address);
  if (end == LOST && was_open) { /* ended by the idle server, or closed by the program */
    SYS3(NR_CLOSE, connection->socket, 0, 0);
    connection->socket = -1;
    end = attempt(connection, size, response, address);
  }
  connection->is_busy = 0;
  if (end == LOST)
    complain("the server cannot be reached, or it died", address);
  if (end != DONE)
    close_both(connection);
  return end == DONE;
}
