// SPDX-License-Identifier: Apache-2.0

package zdnn_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	zdnnv1 "nnpa.dev/nnpa/gen/nnpa/zdnn/v1"
	"nnpa.dev/nnpa/zdnn"
)

// use opens a session, adds, and closes it.
func use(t *testing.T, target string, options zdnn.Options) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	s, err := zdnn.Connect(ctx, target, options)
	if err != nil {
		return err
	}
	z := vector(t, ctx, s, 1, 2)
	_, err = zdnn.Add(ctx, z, z, nil)
	return errors.Join(err, s.Close(), s.Close())
}

// A server is reached over TCP as over a Unix socket, and the target says which.
func TestTCP(t *testing.T) {
	target, stop, err := start("--listen", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	if err := use(t, target, zdnn.Options{}); err != nil {
		t.Error(err)
	}
	for _, wrong := range []string{"localhost", "localhost:", "unix:", "localhost:70000", "localhost:x"} {
		if err := use(t, wrong, zdnn.Options{}); err == nil || !strings.Contains(err.Error(), "expected host:port") {
			t.Errorf("%q: %v", wrong, err)
		}
	}
}

// Without a target a private server serves the session, and ends with it.
func TestPrivateServer(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	if err := use(t, "", zdnn.Options{}); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(os.TempDir())
	if err != nil || len(left) != 0 {
		t.Error(left, err)
	}
	t.Setenv("PATH", t.TempDir())
	missing := "nnpa-server is not on the PATH: pip install '.[server]' in a clone of nnpa brings it"
	if err := use(t, "", zdnn.Options{}); err == nil || !strings.Contains(err.Error(), missing) {
		t.Error(err)
	}
}

// The error of an address without a listener names the things to check.
func TestNobodyListens(t *testing.T) {
	err := use(t, "unix:"+filepath.Join(t.TempDir(), "none.sock"), zdnn.Options{})
	var transport *zdnn.TransportError
	if !errors.As(err, &transport) || transport.Code != codes.Unavailable {
		t.Fatal(err)
	}
	if !strings.Contains(err.Error(), "none.sock") || !strings.Contains(transport.Advice, "nnpa-server --listen") {
		t.Error(err)
	}
	if status.Code(err) != codes.Unavailable {
		t.Error("no gRPC status")
	}
}

// An unknown name is an error with the server's reason.
func TestReasons(t *testing.T) {
	for reason, options := range map[string]zdnn.Options{
		"MACHINE_NOT_FOUND":       {Machine: "z14"},
		"LIBRARY_VERSION_UNKNOWN": {Library: "9.9.9"},
	} {
		var transport *zdnn.TransportError
		if err := use(t, server, options); !errors.As(err, &transport) || transport.Reason != reason {
			t.Errorf("%s: %v", reason, err)
		}
	}
	if err := use(t, server, zdnn.Options{Machine: "z16", MachineSpec: &zdnn.MachineSpec{}}); err == nil {
		t.Error("two machines were accepted")
	}
}

// party is a certificate and its key, as objects and as files.
type party struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	files       [2]string
}

// newParty makes a certificate for localhost, signed by an issuer, or by itself as a CA.
func newParty(t *testing.T, name string, issuer *party) *party {
	t.Helper()
	p := &party{key: must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"localhost"},
		BasicConstraintsValid: true, IsCA: issuer == nil,
	}
	signer := p
	p.certificate = template
	if issuer != nil {
		signer = issuer
	}
	der := must(x509.CreateCertificate(rand.Reader, template, signer.certificate, &p.key.PublicKey, signer.key))(t)
	p.certificate = must(x509.ParseCertificate(der))(t)
	secret := must(x509.MarshalPKCS8PrivateKey(p.key))(t)
	for i, block := range []*pem.Block{{Type: "CERTIFICATE", Bytes: der}, {Type: "PRIVATE KEY", Bytes: secret}} {
		p.files[i] = filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(p.files[i], pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// TLS needs the CA, mutual TLS a certificate too; options win over the environment.
func TestTLS(t *testing.T) {
	ca := newParty(t, "ca", nil)
	host, guest := newParty(t, "server", ca), newParty(t, "client", ca)
	target, stop, err := start(
		"--listen", "127.0.0.1:0", "--tls-cert", host.files[0], "--tls-key", host.files[1],
		"--tls-client-ca", ca.files[0],
	)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	full := zdnn.Options{TLSCA: ca.files[0], TLSCert: guest.files[0], TLSKey: guest.files[1]}
	if err := use(t, target, full); err != nil {
		t.Error(err)
	}
	for name, options := range map[string]zdnn.Options{
		"no TLS":            {},
		"no certificate":    {TLSCA: ca.files[0]},
		"a CA of strangers": {TLSCA: newParty(t, "other", nil).files[0], TLSCert: guest.files[0], TLSKey: guest.files[1]},
		"key alone":         {TLSCA: ca.files[0], TLSKey: guest.files[1]},
		"no CA":             {TLSCert: guest.files[0], TLSKey: guest.files[1]},
		"no such file":      {TLSCA: ca.files[0] + ".none"},
		"a key as CA":       {TLSCA: guest.files[1]},
	} {
		if err := use(t, target, options); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	says := target + " speaks TLS. Give TLSCA, or set ZDNN_TLS_CA"
	if err := use(t, target, zdnn.Options{}); err == nil || !strings.Contains(err.Error(), says) {
		t.Errorf("%v, expected %s", err, says)
	}
	t.Setenv("ZDNN_TLS_CA", ca.files[0])
	t.Setenv("ZDNN_TLS_CERT", guest.files[0])
	t.Setenv("ZDNN_TLS_KEY", guest.files[1])
	if err := use(t, target, zdnn.Options{}); err != nil {
		t.Error(err)
	}
	if err := use(t, server, zdnn.Options{}); err != nil { // a Unix socket needs none
		t.Error(err)
	}
}

// guarded is a service that reports the token of a call.
type guarded struct {
	zdnnv1.UnimplementedAcceleratorServiceServer
	tokens []string
}

func (g *guarded) CreateSession(ctx context.Context, _ *zdnnv1.CreateSessionRequest) (*zdnnv1.Session, error) {
	incoming, _ := metadata.FromIncomingContext(ctx)
	g.tokens = append(g.tokens, incoming.Get("authorization")...)
	return nil, status.Error(codes.Unauthenticated, "not today")
}

// A token goes with every call: the option's, or else the environment's.
func TestToken(t *testing.T) {
	service, listening := &guarded{}, must(net.Listen("tcp", "127.0.0.1:0"))(t)
	host := grpc.NewServer()
	zdnnv1.RegisterAcceleratorServiceServer(host, service)
	go func() { _ = host.Serve(listening) }()
	defer host.Stop()
	t.Setenv("ZDNN_TOKEN", "of the environment")
	for _, options := range []zdnn.Options{{}, {Token: "of the option"}} {
		if err := use(t, listening.Addr().String(), options); err == nil {
			t.Error("accepted")
		}
	}
	if got := strings.Join(service.tokens, ", "); got != "Bearer of the environment, Bearer of the option" {
		t.Error(got)
	}
}
