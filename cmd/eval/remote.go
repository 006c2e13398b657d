package main

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/cas/remote"
	"github.com/evalbuild/eval/cas/remote/reapi"
	"github.com/evalbuild/eval/workspace/engine"
)

var (
	flagRemote   = &cli.StringFlag{Name: "remote_cache", Usage: "share results through the server at `URL`: grpc://HOST:PORT, grpcs://HOST:PORT or unix:///PATH"}
	flagUpload   = &cli.StringFlag{Name: "remote_upload", Usage: "`WHAT` is sent: always everything that is worth it, never anything, or auto: captures by whoever drew them, the rest by CI only", DefaultText: "auto"}
	flagDownload = &cli.StringFlag{Name: "remote_download", Usage: "`WHAT` is brought of what the server has: toplevel, all or minimal; captures and scorecards always", DefaultText: "toplevel"}
	flagTimeout  = &cli.StringFlag{Name: "remote_timeout", Usage: "wait at most `TIME` for an answer, as in 10s", DefaultText: "60s"}
	flagRequired = &cli.BoolFlag{Name: "remote_required", DisableDefaultText: true, Usage: "end with exit code 6 if the server can't be used, instead of going on without it"}
	flagHeader   = &cli.StringSliceFlag{Name: "remote_header", Usage: "send a header with every call: `NAME=VALUE`; may be given several times"}
	flagTLSCA    = &cli.StringFlag{Name: "tls_certificate", Usage: "trust servers with a certificate that those in `FILE` (PEM) have signed", DefaultText: "those of the system"}
	flagTLSCert  = &cli.StringFlag{Name: "tls_client_certificate", Usage: "show the server the certificate in `FILE` (PEM)"}
	flagTLSKey   = &cli.StringFlag{Name: "tls_client_key", Usage: "the key of --tls_client_certificate is in `FILE` (PEM)"}
	flagSign     = &cli.StringFlag{Name: "remote_sign", Usage: "sign what is sent with the ed25519 key in `FILE` (PEM)"}

	// connectFlags say how to reach a server, remoteFlags what to do with it: those
	// are of the verbs that look results up.
	connectFlags = []cli.Flag{flagRemote, flagTimeout, flagHeader, flagTLSCA, flagTLSCert, flagTLSKey}
	remoteFlags  = slices.Concat(connectFlags, []cli.Flag{flagUpload, flagDownload, flagRequired, flagSign})
)

// openRemote makes what --remote_cache names, nil if it isn't given. Nothing is
// asked of the server yet.
func (s *session) openRemote() error {
	if s.values["remote_cache"] == "" {
		if s.bool("remote_required") {
			return usageErrorf("--remote_required: no --remote_cache is named")
		}
		return nil
	}
	client, err := s.dialRemote(s.store.Func())
	if err != nil {
		return err
	}
	ro := remote.Options{
		Client: client, Store: s.store, Required: s.bool("remote_required"), Now: clock,
		Warn: func(msg string) { fmt.Fprintf(os.Stderr, "eval: warning: %s\n", safe(msg)) },
	}
	if ro.Sign, err = signingKey(s.settings); err == nil {
		ro.Trusted, err = trustedBuilders(s.ws.Module().TrustedBuilders)
	}
	if err != nil {
		return errors.Join(err, client.Close())
	}
	s.remote = remote.New(ro)
	return nil
}

// dialRemote makes a client of the server; it connects when it is first used.
func (s *settings) dialRemote(prefer cas.Func) (*reapi.Client, error) {
	o := reapi.Options{
		Address: s.values["remote_cache"], CA: s.values["tls_certificate"], Cert: s.values["tls_client_certificate"], Key: s.values["tls_client_key"],
		Prefer: prefer,
	}
	var err error
	if o.Timeout, err = s.remoteTimeout(); err != nil {
		return nil, err
	}
	for _, h := range s.list("remote_header") {
		name, value, ok := strings.Cut(h, "=")
		if !ok || name == "" { // its value may be a secret: it isn't repeated
			return nil, usageErrorf("--remote_header wants NAME=VALUE")
		}
		o.Headers = append(o.Headers, reapi.Header{Name: name, Value: value})
	}
	client, err := reapi.New(o)
	if err != nil {
		return nil, remoteError(err)
	}
	return client, nil
}

// remoteTimeout reads --remote_timeout: a duration, or seconds as Bazel has them.
func (s *settings) remoteTimeout() (time.Duration, error) {
	v := s.values["remote_timeout"]
	if v == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(v)
	if n, nerr := strconv.Atoi(v); nerr == nil {
		d, err = time.Duration(n)*time.Second, nil
	}
	if err != nil || d <= 0 {
		return 0, usageErrorf("--remote_timeout is a time from 1ms, as in 10s, not %q", v)
	}
	return d, nil
}

func signingKey(s *settings) (ed25519.PrivateKey, error) {
	file := s.values["remote_sign"]
	if file == "" {
		return nil, nil
	}
	key, err := remote.LoadKey(file)
	if err != nil {
		return nil, usageErrorf("--remote_sign: %v", err).hint("`openssl genpkey -algorithm ed25519 -out %s` makes one, `chmod 600 %s` keeps it yours", file, file)
	}
	return key, nil
}

func trustedBuilders(texts []string) ([]ed25519.PublicKey, error) {
	var keys []ed25519.PublicKey
	for _, text := range texts {
		k, err := remote.ParseKey(text)
		if err != nil {
			return nil, usageErrorf("MODULE.star: trusted_builders: %v", err)
		}
		keys = append(keys, k)
	}
	return keys, nil
}

// remoteError is an error of the options; its hint, if it has one, stays.
func remoteError(err error) error {
	e := usageErrorf("--remote_cache: %v", err)
	for _, h := range hintsOf(err) {
		e.hint("%s", h)
	}
	return e
}

// uploads is what --remote_upload lets this machine send.
func (s *settings) uploads() engine.Upload {
	switch s.values["remote_upload"] {
	case "always":
		return engine.UploadAll
	case "never":
		return engine.UploadNothing
	}
	if onCI() {
		return engine.UploadAll
	}
	return engine.UploadCaptures
}

// onCI says whether this is a CI job: all that are in use set CI.
func onCI() bool {
	v := os.Getenv("CI")
	return v != "" && v != "false" && v != "0"
}

func (s *settings) downloads() engine.Download {
	switch s.values["remote_download"] {
	case "all":
		return engine.DownloadAll
	case "minimal":
		return engine.DownloadMinimal
	}
	return engine.DownloadToplevel
}

// flushRemote waits until what this build has to send is sent.
func (s *session) flushRemote(ctx context.Context) error {
	if s.remote == nil {
		return nil
	}
	slow := time.AfterFunc(time.Second, func() {
		if n := s.remote.Pending(); n > 0 {
			fmt.Fprintf(os.Stderr, "remote cache: %s still to be sent; Ctrl-C leaves the rest to the next build\n", plural(n, "result is", "results are"))
		}
	})
	err := s.remote.Flush(ctx)
	slow.Stop()
	printTraffic(s.remote.Stats())
	if ctx.Err() != nil {
		return engine.ErrInterrupted
	}
	var outage *remote.OutageError
	if errors.As(err, &outage) {
		return failf(exitInfra, "%v", err).hint("without --remote_required a build goes on, and the next one sends what is missing")
	}
	return err
}

// printTraffic says what a build had of the remote cache and gave to it.
func printTraffic(t remote.Stats) {
	var parts []string
	if t.Fetched > 0 {
		parts = append(parts, "brought "+plural(t.Fetched, "result", "results"))
	}
	if t.Sent > 0 {
		parts = append(parts, "sent "+plural(t.Sent, "result", "results"))
	}
	for _, why := range slices.Sorted(maps.Keys(t.NotSent)) {
		if why != "received" && why != "known" { // that is as it should be
			parts = append(parts, fmt.Sprintf("%d not sent (%s)", t.NotSent[why], why))
		}
	}
	if len(parts) > 0 {
		fmt.Fprintf(stdout, "remote cache: %s; %s down, %s up\n", strings.Join(parts, ", "), bytesText(t.Down), bytesText(t.Up))
	}
}

// engineRemote is the cache as the engine wants it.
type engineRemote struct{ *remote.Cache }

func (r engineRemote) Send(c cas.Class, key cas.Digest, result cas.Result, messages func() (action, command []byte, err error), rival func(cas.Digest)) {
	var action, command []byte
	if messages != nil {
		if !r.Wants(key) {
			return
		}
		var err error
		if action, command, err = messages(); err != nil { // then there would be no key
			return
		}
	}
	r.Cache.Send(c, key, action, command, result, rival)
}
