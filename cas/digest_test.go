package cas

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

// The hashes of the empty input, from the specifications.
const (
	emptyBLAKE3 = "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"
	emptySHA256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
)

func TestFunc(t *testing.T) {
	for fn, want := range map[Func]string{BLAKE3: "blake3:" + emptyBLAKE3 + "/0", SHA256: "sha256:" + emptySHA256 + "/0"} {
		if got := fn.Sum(nil).String(); got != want {
			t.Errorf("%v: got %s, want %s", fn, got, want)
		}
		again, err := ParseFunc(fn.String())
		if err != nil || again != fn {
			t.Errorf("ParseFunc(%v) = %v, %v", fn, again, err)
		}
		big := bytes.Repeat([]byte("eval"), 100_000)
		streamed, err := fn.SumReader(bytes.NewReader(big))
		if err != nil || streamed != fn.Sum(big) {
			t.Errorf("%v: SumReader gives %v, %v; Sum %v", fn, streamed, err, fn.Sum(big))
		}
	}
	if _, err := ParseFunc("md5"); err == nil {
		t.Error("ParseFunc took md5")
	}
}

func TestParseDigestRefuses(t *testing.T) {
	hex := emptyBLAKE3
	for _, s := range []string{
		"", "none", "blake3", "blake3:" + hex, "blake3:" + hex + "/", "blake3:" + hex + "/-1",
		"blake3:" + hex + "/+1", "blake3:" + hex + "/01", "blake3:" + hex + "/1 ", "blake3:" + hex + "/0x1",
		"blake3:" + hex + "/9223372036854775808", "blake3:" + strings.ToUpper(hex) + "/1",
		"blake3:" + hex[1:] + "/1", "blake3:" + hex + "0/1", "BLAKE3:" + hex + "/1", "md5:" + hex + "/1",
		"blake3:" + hex[:63] + "g/1", " blake3:" + hex + "/1",
	} {
		if d, err := ParseDigest(s); err == nil {
			t.Errorf("ParseDigest(%q) = %v", s, d)
		}
	}
}

func TestDigestText(t *testing.T) {
	type doc struct{ A, B Digest }
	want := doc{A: SHA256.Sum([]byte("x"))}
	b, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var got doc
	if err := json.Unmarshal(b, &got); err != nil || got != want {
		t.Errorf("%s: got %v, %v", b, got, err)
	}
	if _, err := (Digest{Func: BLAKE3, Size: -1}).MarshalText(); err == nil {
		t.Error("a negative size was written")
	}
	if _, err := (Digest{Func: 9, Size: 1}).MarshalText(); err == nil {
		t.Error("an unknown function was written")
	}
}

func FuzzDigest(f *testing.F) {
	f.Add("blake3:" + emptyBLAKE3 + "/0")
	f.Add("sha256:" + emptySHA256 + "/9223372036854775807")
	f.Add("sha256:" + emptySHA256 + "/007")
	f.Fuzz(func(t *testing.T, s string) {
		d, err := ParseDigest(s)
		if err == nil && d.String() != s {
			t.Errorf("%q and %q are one digest", s, d)
		}
	})
}

func TestStamp(t *testing.T) {
	seen := map[int64]bool{}
	for i := range 1000 {
		d := BLAKE3.Sum([]byte{byte(i), byte(i >> 8)})
		at := Stamp(d).UTC()
		if at.Year() != 2000 {
			t.Fatalf("Stamp(%v) = %v", d, at)
		}
		seen[at.UnixNano()] = true
		longer := d
		longer.Size++
		if Stamp(longer).Equal(at) || stampOf(d, d.Size+1).Equal(at) {
			t.Errorf("the stamp of %v doesn't depend on the sizes", d)
		}
	}
	if len(seen) != 1000 {
		t.Errorf("1000 digests have %d stamps", len(seen))
	}
}
