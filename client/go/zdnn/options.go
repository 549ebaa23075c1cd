// SPDX-License-Identifier: Apache-2.0

package zdnn

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	zdnnv1 "nnpa.dev/nnpa/gen/nnpa/zdnn/v1"
)

// probeTimeout bounds the look whether a server speaks TLS.
const probeTimeout = 2 * time.Second

// MachineSpec chooses a machine, or describes a custom one.
type MachineSpec = zdnnv1.MachineSpec

// Options choose the connection to a server and the session on it. The zero value is a Telum II with
// zDNN 1.2.0, as a release build, on an unencrypted connection.
type Options struct {
	// Machine is a machine's name or alias, for example "telum1" or "z16"; MachineSpec describes a custom
	// machine. Set at most one of them.
	Machine     string
	MachineSpec *MachineSpec
	// Library is the version of zDNN, for example "1.0.1".
	Library string
	// Precheck verifies operands before the machine sees them; without it, operands that contradict
	// each other are a ProgramCheck.
	Precheck bool
	// The other options of nnpa.zdnn.v1.Session; 0, "" and nil are the server's defaults.
	StatusDiag         *uint32
	ProgramCheckAction ProgramCheckAction
	LogLevel           LogLevel
	LogModule          string
	Numerics           Numerics
	JitterSeed         uint64
	Accumulate         Accumulate

	// TLSCA is a file with the certificates that may sign the server's, PEM; with it the connection
	// is encrypted. TLSCert and TLSKey show a certificate to the server. Default: the environment's
	// ZDNN_TLS_CA, ZDNN_TLS_CERT, ZDNN_TLS_KEY. Unix sockets need none.
	TLSCA, TLSCert, TLSKey string
	// Token is sent with every call. Default: the environment's ZDNN_TOKEN.
	Token string
	// Plain sends each list of operations as a call of its own, not over the session's stream. Default:
	// the environment's ZDNN_PLAIN, 1 or names of shortcuts, of which this is "stream".
	Plain bool
	// Wait is how long to retry at a full server. Default: the environment's ZDNN_WAIT, seconds.
	Wait time.Duration
	// DialOptions are gRPC's, applied after the options of the fields above.
	DialOptions []grpc.DialOption

	// Warn is called with every warning; its error becomes the error of the verb, or of the pipeline, whose
	// outputs are valid all the same. Default: a line in Logger, and no error.
	Warn func(*ZdnnWarning) error
	// Logger gets warnings, and the library's output as debugging lines. Default: slog.Default().
	Logger *slog.Logger
}

// session returns the message that the options ask for, without the machine's name. The environment's
// ZDNN_TRACE, which `nnpa trace record` sets, is the trace that records it.
func (o *Options) session() *zdnnv1.Session {
	return &zdnnv1.Session{
		MachineSpec: o.MachineSpec, LibraryVersion: o.Library, Precheck: o.Precheck,
		StatusDiag: o.StatusDiag, ProgramCheckAction: o.ProgramCheckAction, LogLevel: o.LogLevel,
		LogModule: o.LogModule, Numerics: o.Numerics, JitterSeed: o.JitterSeed,
		Accumulate: o.Accumulate, Trace: os.Getenv("ZDNN_TRACE"),
	}
}

// Dial returns a connection to a server, "host:port" or "unix:/path", by the options that say how
// to reach it. Connect does this by itself; other APIs of the server share Session.Conn.
func Dial(target string, options Options) (*grpc.ClientConn, error) {
	if scheme, address, isURL := strings.Cut(target, "://"); isURL && !resolved[scheme] {
		return nil, fmt.Errorf("target: %q is a URL, expected host:port; give %q, and TLSCA where "+
			"the server has TLS", target, strings.TrimRight(address, "/"))
	}
	path, isUnix := strings.CutPrefix(target, "unix:")
	port, err := strconv.ParseUint(target[strings.LastIndexByte(target, ':')+1:], 10, 16)
	if isUnix && path == "" || !isUnix && (err != nil || port == 0) {
		return nil, fmt.Errorf("target: %q, expected host:port or unix:/path", target)
	}
	transport, err := options.credentials(isUnix)
	if err != nil {
		return nil, err
	}
	dial := []grpc.DialOption{
		grpc.WithTransportCredentials(transport),
		grpc.WithDefaultCallOptions(
			grpc.MaxCallRecvMsgSize(math.MaxInt32), grpc.MaxCallSendMsgSize(math.MaxInt32),
		),
	}
	if token := or(options.Token, "ZDNN_TOKEN"); token != "" {
		dial = append(dial, grpc.WithPerRPCCredentials(bearer(token)))
	}
	return grpc.NewClient(target, append(dial, options.DialOptions...)...)
}

// resolved are the schemes of targets that gRPC resolves. Source: gRPC, naming.md.
var resolved = map[string]bool{"unix": true, "dns": true, "ipv4": true, "ipv6": true, "passthrough": true}

// speaksTLS reports whether a TLS handshake succeeds at host:port, with any certificate.
func speaksTLS(target string) bool {
	probe := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}
	conn, err := tls.DialWithDialer(&net.Dialer{Timeout: probeTimeout}, "tcp", target, probe)
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}

// explainTLS says in the error of an unreached server that it speaks TLS, if it does; else it returns
// the error unchanged.
func explainTLS(err error, target string, options Options) error {
	var failure *TransportError
	isPlain := or(options.TLSCA, "ZDNN_TLS_CA") == "" && !strings.HasPrefix(target, "unix:")
	if !isPlain || !errors.As(err, &failure) || failure.Code != codes.Unavailable ||
		failure.Reason != "" || !speaksTLS(target) {
		return err
	}
	failure.Message = target + " speaks TLS"
	failure.Advice = "Give TLSCA, or set ZDNN_TLS_CA: the file with the certificate that signs the server's."
	return failure
}

// plain reports whether lists are calls of their own: by the option, or by ZDNN_PLAIN.
func (o *Options) plain() (bool, error) {
	isPlain := o.Plain
	for _, name := range strings.Split(os.Getenv("ZDNN_PLAIN"), ",") {
		switch strings.TrimSpace(name) {
		case "1", "stream":
			isPlain = true
		case "", "0", "plain-socket", "out-of-band-arrays", "content-cache", "shared-memory":
		default:
			return false, fmt.Errorf("ZDNN_PLAIN: %q, expected 1, or some of stream, plain-socket, "+
				"out-of-band-arrays, content-cache, shared-memory", name)
		}
	}
	return isPlain, nil
}

// or returns an option, or else the environment's variable of a name.
func or(option, name string) string { return cmp.Or(option, os.Getenv(name)) }

func (o *Options) credentials(isUnix bool) (credentials.TransportCredentials, error) {
	ca, cert, key := or(o.TLSCA, "ZDNN_TLS_CA"), or(o.TLSCert, "ZDNN_TLS_CERT"), or(o.TLSKey, "ZDNN_TLS_KEY")
	switch {
	case isUnix || ca == "" && cert == "" && key == "":
		return insecure.NewCredentials(), nil
	case (cert == "") != (key == ""):
		return nil, errors.New("TLSCert, TLSKey: one given alone, they go together")
	case ca == "":
		return nil, errors.New("TLSCA: not given, TLSCert needs it")
	}
	pem, err := os.ReadFile(ca)
	if err != nil {
		return nil, fmt.Errorf("TLSCA: %w", err)
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: x509.NewCertPool()}
	if !config.RootCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("TLSCA: no certificate in %s", ca)
	}
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("TLSCert, TLSKey: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return credentials.NewTLS(config), nil
}

// bearer is a token that goes with every call, also over a Unix socket.
type bearer string

func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(b)}, nil
}

func (bearer) RequireTransportSecurity() bool { return false }
