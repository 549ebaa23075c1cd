// SPDX-License-Identifier: Apache-2.0

// Package zdnn is IBM's zDNN on an emulated Telum: sessions on a server, ztensors in them, and one
// function per C function, in its order of parameters. An output that is nil is created.
//
// A status that is an error is a *ZdnnError; a warning goes to Options.Warn; operands that would
// end the program on the machine are a *ProgramCheck; everything between here and the accelerator
// is a *TransportError. Descriptors, sizes, limits and status texts are local and need no server.
package zdnn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
	"weak"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	zdnnv1 "nnpa.dev/nnpa/gen/nnpa/zdnn/v1"
)

// closeTimeout bounds the call that deletes a session.
const closeTimeout = 10 * time.Second

// Session is a guest on an emulated machine with a zDNN library and its ztensors. One goroutine at a
// time may use it, or its ztensors; goroutines open a session each.
type Session struct {
	client  zdnnv1.AcceleratorServiceClient
	conn    *grpc.ClientConn
	server  *privateServer
	message *zdnnv1.Session
	ticket  string
	warn    func(*ZdnnWarning) error
	logger  *slog.Logger
	ids     uint64
	living  map[uint64]weak.Pointer[Ztensor]
	// dropped are the tensors that the collector has found unused, from another goroutine.
	droppedLock sync.Mutex
	dropped     []uint64
	pipelines   int
	queue       []*call
	queuedBytes int
	results     []*zdnnv1.OperationResult
	uncertain   bool
	closed      bool
}

// Connect opens a session on a server, "host:port" or "unix:/path"; "" starts a private nnpa-server,
// found on the PATH, which ends with the session and with this process. The context bounds the calls
// that this takes, not the session.
func Connect(ctx context.Context, target string, options Options) (s *Session, err error) {
	var own *privateServer
	if target == "" {
		if own, err = startServer(ctx); err != nil {
			return nil, err
		}
		target = own.target
	}
	conn, err := Dial(target, options)
	if err != nil {
		return nil, errors.Join(err, own.stop())
	}
	s, err = NewSession(ctx, zdnnv1.NewAcceleratorServiceClient(conn), options)
	if err != nil {
		return nil, errors.Join(explainTLS(err, target, options), conn.Close(), own.stop())
	}
	s.conn, s.server = conn, own
	return s, nil
}

// NewSession opens a session by the service's methods: a stub on the caller's connection, or a test's
// implementation.
func NewSession(
	ctx context.Context, client zdnnv1.AcceleratorServiceClient, options Options,
) (*Session, error) {
	s := &Session{
		client: client, warn: options.Warn, logger: cmp.Or(options.Logger, slog.Default()),
		living: map[uint64]weak.Pointer[Ztensor]{},
	}
	opened := options.session()
	if options.Machine != "" {
		if options.MachineSpec != nil {
			return nil, errors.New("Machine, MachineSpec: both given, expected at most one")
		}
		spec, err := s.machineSpec(ctx, options.Machine)
		if err != nil {
			return nil, err
		}
		opened.MachineSpec = spec
	}
	wait, waitErr := options.wait()
	isPlain, plainErr := options.plain()
	if err := errors.Join(waitErr, plainErr); err != nil {
		return nil, err
	}
	var err error
	s.message, s.ticket, err = createSession(ctx, client, opened, wait, s.logger)
	if err != nil {
		return nil, err
	}
	if !isPlain {
		idle := s.message.GetLimits().GetIdleTimeout().AsDuration()
		s.client = &streamClient{AcceleratorServiceClient: client, maxIdle: idle / 2}
	}
	return s, nil
}

// machineSpec asks the server for the model of a machine's name or alias.
func (s *Session) machineSpec(ctx context.Context, name string) (*MachineSpec, error) {
	machine, err := s.client.GetMachine(ctx, &zdnnv1.GetMachineRequest{Name: "machines/" + name})
	if err != nil {
		return nil, ExplainError(err)
	}
	return &MachineSpec{Model: machine.Model}, nil
}

// String returns the server's address, machine and version, and never the session's name, which is a key.
func (s *Session) String() string {
	state, place := "open", s.Target()
	if s.closed {
		state = "closed"
	}
	if place != "" {
		state += " at " + place
	}
	machine := machineName(s.message.GetMachine())
	return fmt.Sprintf("Session(%s, %s, zDNN %s)", state, machine, s.message.GetLibraryVersion())
}

// Message returns the server's last description of the session: machine, limits, options. Do not change
// it.
func (s *Session) Message() Status { return Status{s.message} }

// Machine returns the session's machine, with its answer to NNPA-QAF.
func (s *Session) Machine() Machine { return Machine{s.message.GetMachine()} }

// TicketHeader is the metadata by which a proxy routes the calls of a session to its server.
const TicketHeader = "nnpa-session-ticket"

// WithTicket returns a context with the routing ticket of the session, for calls by other APIs of the
// server or over another connection behind a proxy.
func (s *Session) WithTicket(ctx context.Context) context.Context { return withTicket(ctx, s.ticket) }

func withTicket(ctx context.Context, ticket string) context.Context {
	if ticket == "" {
		return ctx
	}
	outgoing, _ := metadata.FromOutgoingContext(ctx)
	outgoing = outgoing.Copy()
	outgoing.Set(TicketHeader, ticket)
	return metadata.NewOutgoingContext(ctx, outgoing)
}

// explain translates the error of a failed call of the session; the context is the caller's.
func (s *Session) explain(ctx context.Context, err error) error {
	failure := ExplainError(err)
	if transport, is := failure.(*TransportError); is && transport.Reason == "" &&
		ctx.Err() == nil && !s.closed && lostCodes[transport.Code] {
		return &SessionLostError{transport}
	}
	return failure
}

// Conn returns the connection, for other APIs of the server; nil for a session of NewSession.
func (s *Session) Conn() *grpc.ClientConn { return s.conn }

// NewID returns an unused tensor id of the session, for Execute.
func (s *Session) NewID() uint64 {
	s.ids++
	return s.ids
}

// Status asks the server for the session as it is now: options, tensor_count, stored_bytes, ...
func (s *Session) Status(ctx context.Context) (Status, error) {
	message, err := s.client.GetSession(s.WithTicket(ctx), &zdnnv1.GetSessionRequest{Name: s.message.Name})
	if err != nil {
		return Status{}, s.explain(ctx, err)
	}
	s.message = message
	return Status{message}, nil
}

// Update changes options: the named fields of the message, for example "precheck". Queued calls of a
// pipeline run first. Ztensors stay.
func (s *Session) Update(ctx context.Context, changes *zdnnv1.Session, fields ...string) error {
	if err := s.flush(ctx); err != nil {
		return err
	}
	changes.Name = s.message.Name
	request := &zdnnv1.UpdateSessionRequest{
		Session: changes, UpdateMask: &fieldmaskpb.FieldMask{Paths: fields},
	}
	message, err := s.client.UpdateSession(s.WithTicket(ctx), request)
	if err != nil {
		return s.explain(ctx, err)
	}
	s.message = message
	return nil
}

// Move moves the guest to another machine by name or alias. The query functions answer from the old
// query result until Init or RefreshNnpaQueryResult runs, as on the machine.
func (s *Session) Move(ctx context.Context, machine string) error {
	spec, err := s.machineSpec(ctx, machine)
	if err != nil {
		return err
	}
	return s.Update(ctx, &zdnnv1.Session{MachineSpec: spec}, "machine_spec")
}

// ListTensors lists the tensors that the server holds for the session, by ascending id.
func (s *Session) ListTensors(ctx context.Context) ([]*zdnnv1.ZtensorInfo, error) {
	var tensors []*zdnnv1.ZtensorInfo
	request := &zdnnv1.ListTensorsRequest{Session: s.message.Name, PageSize: 1000}
	for {
		page, err := s.client.ListTensors(s.WithTicket(ctx), request)
		if err != nil {
			return nil, s.explain(ctx, err)
		}
		tensors = append(tensors, page.Tensors...)
		if page.NextPageToken == "" {
			return tensors, nil
		}
		request.PageToken = page.NextPageToken
	}
}

// GetLibraryVersionStr returns the version of the session's library: zdnn_get_library_version_str.
func (s *Session) GetLibraryVersionStr() string { return s.message.LibraryVersion }

// GetLibraryVersion returns the version as 0x00MMmmpp: zdnn_get_library_version.
func (s *Session) GetLibraryVersion() uint32 {
	var major, minor, patch uint32
	if _, err := fmt.Sscanf(s.message.LibraryVersion, "%d.%d.%d", &major, &minor, &patch); err != nil {
		return 0
	}
	return major<<16 | minor<<8 | patch
}

// Pipeline runs body, whose verbs queue, and sends them as one list when it ends; it returns their
// answers. Outputs exist when the list has run, and may be used at once. A verb whose value is needed at
// once (an array without a buffer, a query) first sends the queue. The first error ends the list:
// ZdnnError.OperationIndex is its index, and later operations have not run. If body returns an error,
// the queue does not run. Pipelines may nest; the outer one runs.
func (s *Session) Pipeline(
	ctx context.Context, body func() error,
) (results []*zdnnv1.OperationResult, err error) {
	if s.pipelines == 0 {
		s.results = nil
	}
	s.pipelines++
	defer func() {
		s.pipelines--
		if s.pipelines > 0 {
			return
		}
		invalidateAll(s.queue, "its pipeline was left by an error")
		s.queue, s.queuedBytes = nil, 0
		results, s.results = s.results, nil
	}()
	if err = body(); err != nil || s.pipelines > 1 {
		return nil, err
	}
	return nil, s.flush(ctx)
}

// Execute runs operations of the wire contract as they are, and returns their answers, errors included.
// Queued calls of an open pipeline run first. Take ids for new tensors from NewID.
func (s *Session) Execute(
	ctx context.Context, operations ...*zdnnv1.Operation,
) ([]*zdnnv1.OperationResult, error) {
	if err := s.flush(ctx); err != nil && !isWarned(err) {
		return nil, err
	}
	return s.execute(ctx, operations)
}

// Target returns the server's address, for other sessions on it; "" for a session of NewSession.
func (s *Session) Target() string {
	if s.conn == nil {
		return ""
	}
	return s.conn.Target()
}

// Close deletes the session with its ztensors, closes the connection of Connect, and stops its private
// server. It may be repeated.
func (s *Session) Close() error {
	if s.closed {
		return nil
	}
	s.closed = true
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	_, err := s.client.DeleteSession(s.WithTicket(ctx), &zdnnv1.DeleteSessionRequest{Name: s.message.Name})
	if s.conn == nil {
		return ExplainError(err)
	}
	return errors.Join(ExplainError(err), s.conn.Close(), s.server.stop())
}
