package wire

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// What a request may have. A run is recorded and sent again: so what a world
// takes is what a Client sends, and the same checks are made at both ends.
const (
	MaxBody   = 1 << 20 // bytes of a body
	MaxTarget = 8 << 10 // bytes of the escaped path with its query
	MaxKey    = 255     // bytes of an Idempotency-Key
)

// Methods are those that a request may have.
var Methods = []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}

// MaxInt is the largest int that a declared param takes, and -MaxInt the least:
// JSON of all kinds carries them, and no sum of a few leaves 64 bits.
const MaxInt = 1<<53 - 1

// MaxFloat is the same of a float.
const MaxFloat = 1e300

// Float reads a float of a request: finite, within ±MaxFloat, written as JSON does.
func Float(text string) (x float64, ok bool) {
	x, err := strconv.ParseFloat(text, 64)
	return x, err == nil && math.Abs(x) <= MaxFloat && !strings.ContainsFunc(text, func(r rune) bool { return !strings.ContainsRune("+-.eE0123456789", r) })
}

// CheckMethod says whether a world takes the method.
func CheckMethod(method string) error {
	if !slices.Contains(Methods, method) {
		return errors.New("GET, POST, PUT, PATCH or DELETE is meant")
	}
	return nil
}

// CheckKey says whether an Idempotency-Key comes through HTTP as it is. Spaces
// at its ends don't; empty it is none.
func CheckKey(key string) error {
	if len(key) > MaxKey {
		return fmt.Errorf("the Idempotency-Key has more than %d bytes", MaxKey)
	}
	for i, c := range []byte(key) {
		if c < ' ' || c == 0x7f {
			return errors.New("the Idempotency-Key has a control character")
		}
		if c == ' ' && (i == 0 || i == len(key)-1) {
			return errors.New("the Idempotency-Key has a space at an end")
		}
	}
	return nil
}

// Target is the path, escaped, with the query in its one form: sorted, and each
// name once. Its length is what MaxTarget bounds.
func Target(path string, query map[string]string) string {
	if len(query) == 0 {
		return path
	}
	values := url.Values{}
	for name, value := range query {
		values.Set(name, value)
	}
	return path + "?" + values.Encode()
}

// maxQuote bounds what an error quotes of a request, in bytes.
const maxQuote = 200

func shorten(text string) string {
	if len(text) > maxQuote {
		return text[:maxQuote] + "…"
	}
	return text
}
