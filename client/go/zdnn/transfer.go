// SPDX-License-Identifier: Apache-2.0

package zdnn

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	zdnnv1 "nnpa.dev/nnpa/gen/nnpa/zdnn/v1"
)

const (
	chunkBytes = 1 << 20
	// Above this, chunks are faster than one message, on a local connection; deploy/docs/go.md.
	maxInlineBytes = 1 << 19
)

// travelsInline reports whether data of a ztensor go with the operation instead of in chunks.
func (z *Ztensor) travelsInline(size float64) bool {
	limit := min(maxInlineBytes, z.session.message.GetLimits().GetMaxInlineBytes())
	return z.id == 0 || size <= float64(limit)
}

// transform sends user arrays to a transform; build makes its operation, with or without them.
func transform[T Element](
	ctx context.Context, name string, z *Ztensor, data [][]T,
	build func(*zdnnv1.TensorRef, [][]byte) *zdnnv1.Operation,
) error {
	v := &verb{name: name}
	ref := v.input("ztensor", z)
	if v.err != nil {
		return v.err
	}
	if err := checkType[T]("data", z.structure.GetPreTransformedDesc()); err != nil {
		return err
	}
	var arrays [][]byte
	total := 0
	for _, array := range data {
		arrays = append(arrays, bytesOf(array))
		total += len(array) * sizeOf[T]()
	}
	c := v.call(build(ref, nil))
	switch {
	case z.id == 0:
		return z.session.submit(ctx, c)
	case z.travelsInline(float64(total)):
		for i, array := range arrays { // a pipeline sends them later
			arrays[i] = bytes.Clone(array)
		}
		c.operation = build(ref, arrays)
		return z.session.submit(ctx, c)
	}
	return z.session.writeArrays(ctx, c, arrays)
}

// writeArrays streams the arrays of a transform that has left them out.
func (s *Session) writeArrays(ctx context.Context, c *call, arrays [][]byte) error {
	header := &zdnnv1.WriteArrays{Operation: c.operation}
	for _, array := range arrays {
		header.ArrayBytes = append(header.ArrayBytes, uint64(len(array)))
	}
	target := &zdnnv1.WriteTensorHeader_Arrays{Arrays: header}
	return s.write(ctx, c, &zdnnv1.WriteTensorHeader{Target: target}, arrays)
}

// write streams a header and chunks, and returns the error of the answer's status.
func (s *Session) write(
	ctx context.Context, c *call, header *zdnnv1.WriteTensorHeader, arrays [][]byte,
) error {
	if err := s.flush(ctx); err != nil && !isWarned(err) {
		return err
	}
	header.Session = s.message.Name
	first := &zdnnv1.WriteTensorRequest{Message: &zdnnv1.WriteTensorRequest_Header{Header: header}}
	wrap := func(chunk []byte) *zdnnv1.WriteTensorRequest {
		return &zdnnv1.WriteTensorRequest{Message: &zdnnv1.WriteTensorRequest_Chunk{Chunk: chunk}}
	}
	answer, err := upload(s.WithTicket(ctx), s.client.WriteTensor, first, arrays, wrap)
	if err != nil {
		invalidateAll([]*call{c}, "the call that makes it failed")
		failure := s.explain(ctx, err)
		s.markUncertain(ctx, failure)
		return failure
	}
	return errors.Join(s.applyResult(c, answer.Result), s.raiseForStatus(c, answer.Result, -1))
}

// upload sends a header, then arrays in chunks, and returns the answer.
func upload[Q, A any](
	ctx context.Context,
	begin func(context.Context, ...grpc.CallOption) (grpc.ClientStreamingClient[Q, A], error),
	header *Q, arrays [][]byte, wrap func([]byte) *Q,
) (*A, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := begin(ctx)
	if err != nil {
		return nil, err
	}
	err = stream.Send(header)
	for _, array := range arrays {
		for chunk := range slices.Chunk(array, chunkBytes) {
			if err == nil {
				err = stream.Send(wrap(chunk))
			}
		}
	}
	if err != nil && !errors.Is(err, io.EOF) { // io.EOF: the answer has arrived
		return nil, err
	}
	return stream.CloseAndRecv()
}

// denseBytes returns an upper bound for the bytes of the dense array.
func (z *Ztensor) denseBytes(element int) float64 {
	desc := z.structure.GetTransformedDesc()
	if element == 1 { // bytes of any type
		element = 4
	}
	return float64(element) * float64(desc.GetDim4()) * float64(desc.GetDim3()) *
		float64(desc.GetDim2()) * float64(desc.GetDim1())
}

// fetch gets the user's array into outBuf, or into a new one.
func fetch[T Element](
	ctx context.Context, name string, z *Ztensor, outBuf []T,
	build func(*zdnnv1.TensorRef) *zdnnv1.Operation,
) ([]T, error) {
	v := &verb{name: name}
	ref := v.input("ztensor", z)
	if v.err != nil {
		return nil, v.err
	}
	if z.structure == nil && outBuf == nil {
		if err := z.session.flush(ctx); err != nil && !isWarned(err) {
			return nil, err
		}
	}
	if err := checkType[T]("outBuf", z.structure.GetPreTransformedDesc()); err != nil {
		return nil, err
	}
	c := v.call(build(ref))
	sink := &sink[T]{array: outBuf, maxBytes: float64(len(outBuf) * sizeOf[T]())}
	if outBuf == nil {
		sink.maxBytes = z.denseBytes(sizeOf[T]())
	}
	if !z.travelsInline(sink.maxBytes) {
		source := &zdnnv1.ReadTensorRequest_Operation{Operation: c.operation}
		err := read(ctx, z.session, c, &zdnnv1.ReadTensorRequest{Source: source}, sink)
		return sink.array, err
	}
	c.read = sink.addAnswer
	err := z.session.submit(ctx, c)
	if outBuf == nil {
		err = errors.Join(err, z.session.flush(ctx))
	}
	return sink.array, err
}

// sink collects chunks in an array of the announced size: the caller's, or a new one.
type sink[T Element] struct {
	array    []T
	maxBytes float64
	// rest is the memory of the array that no chunk has filled yet.
	rest []byte
}

// addAnswer copies the array of an answer, if it has one.
func (s *sink[T]) addAnswer(result *zdnnv1.OperationResult) error {
	data, present := result.Value.(*zdnnv1.OperationResult_Data)
	if !present {
		return nil
	}
	if err := s.expect(uint64(len(data.Data))); err != nil {
		return err
	}
	return s.add(data.Data)
}

// expect prepares for an array of `total` bytes, which the descriptor must allow.
func (s *sink[T]) expect(total uint64) error {
	size := uint64(sizeOf[T]())
	switch {
	case s.array != nil && uint64(len(s.array))*size != total:
		return fmt.Errorf("outBuf: %d bytes, expected %d", uint64(len(s.array))*size, total)
	case float64(total) > s.maxBytes || total > math.MaxInt:
		return fmt.Errorf("answer: %d bytes, expected at most %.0f", total, s.maxBytes)
	case total%size != 0:
		return fmt.Errorf("answer: %d bytes, expected a multiple of %d", total, size)
	case s.array == nil:
		s.array = make([]T, total/size)
	}
	s.rest = memory(s.array)
	return nil
}

// add copies a chunk; behind the last chunk the array gets the order of the host.
func (s *sink[T]) add(chunk []byte) error {
	if len(chunk) > len(s.rest) {
		return fmt.Errorf("answer: %d bytes more than announced", len(chunk)-len(s.rest))
	}
	s.rest = s.rest[copy(s.rest, chunk):]
	if !hostIsLittleEndian && sizeOf[T]() > 1 && len(s.rest) == 0 && len(chunk) > 0 {
		turn(memory(s.array), sizeOf[T]())
	}
	return nil
}

// read streams a tensor into a sink, then returns the error of the status that came first.
func read[T Element](
	ctx context.Context, s *Session, c *call, request *zdnnv1.ReadTensorRequest, into *sink[T],
) error {
	if err := s.flush(ctx); err != nil && !isWarned(err) {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	request.Session = s.message.Name
	stream, err := s.client.ReadTensor(s.WithTicket(ctx), request)
	if err != nil {
		return s.explain(ctx, err)
	}
	result := &zdnnv1.OperationResult{}
	for {
		part, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return errors.Join(s.applyResult(c, result), s.raiseForStatus(c, result, -1))
		}
		if err != nil {
			return s.explain(ctx, err)
		}
		header := part.GetHeader()
		switch {
		case header == nil:
			err = into.add(part.GetChunk())
		case header.TotalBytes > 0:
			err = into.expect(header.TotalBytes)
		}
		if header != nil {
			result = header.Result
		}
		if err != nil {
			return err
		}
	}
}

// ReadSticks returns the contents of the buffer in a byte order; BYTE_ORDER_BIG_ENDIAN gives the
// bytes that an IBM Z machine has.
func (z *Ztensor) ReadSticks(ctx context.Context, order ByteOrder) ([]byte, error) {
	source := &zdnnv1.ReadTensorRequest_Sticks{Sticks: &zdnnv1.ReadSticks{Id: z.id, ByteOrder: order}}
	c := &call{name: "read_sticks", tensors: map[string]*Ztensor{"ztensor": z}}
	sink := &sink[byte]{maxBytes: math.Inf(1)}
	if z.structure != nil {
		sink.maxBytes = float64(GetsizeZtensor(z.structure.TransformedDesc))
	}
	err := read(ctx, z.session, c, &zdnnv1.ReadTensorRequest{Source: source}, sink)
	return sink.array, err
}

// WriteSticks replaces the contents of the buffer, BufferSize bytes.
func (z *Ztensor) WriteSticks(
	ctx context.Context, sticks []byte, order ByteOrder, isTransformed bool,
) error {
	target := &zdnnv1.WriteTensorHeader_Sticks{Sticks: &zdnnv1.WriteSticks{
		Id: z.id, TotalBytes: uint64(len(sticks)), ByteOrder: order, IsTransformed: &isTransformed,
	}}
	c := &call{name: "write_sticks", tensors: map[string]*Ztensor{"ztensor": z}}
	return z.session.write(ctx, c, &zdnnv1.WriteTensorHeader{Target: target}, [][]byte{sticks})
}

// PutZtensor copies a ztensor into the session, unchecked: the structure that another
// session or a machine has written, and its sticks, little-endian; nil is NULL.
func (s *Session) PutZtensor(
	ctx context.Context, structure *zdnnv1.Ztensor, sticks []byte,
) (*Ztensor, error) {
	sent := proto.Clone(structure).(*zdnnv1.Ztensor)
	sent.Contents, sent.NullBuffer = nil, sticks == nil
	z := &Ztensor{session: s, id: s.NewID()}
	target := &zdnnv1.WriteTensorHeader_Sticks{Sticks: &zdnnv1.WriteSticks{
		Id: z.id, NewZtensor: sent, TotalBytes: uint64(len(sticks)),
	}}
	c := &call{
		name: "put_ztensor", tensors: map[string]*Ztensor{"ztensor": z}, creates: []*Ztensor{z},
	}
	err := s.write(ctx, c, &zdnnv1.WriteTensorHeader{Target: target}, [][]byte{sticks})
	if err != nil {
		return nil, err
	}
	return z, nil
}
