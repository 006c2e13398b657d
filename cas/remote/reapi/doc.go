// Package reapi speaks the Remote Execution API v2 with one server.
package reapi

import (
	_ "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	_ "google.golang.org/genproto/googleapis/bytestream"
	_ "google.golang.org/grpc"
)
