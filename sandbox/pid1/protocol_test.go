package pid1

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDecodeHello(t *testing.T) {
	le := binary.LittleEndian
	b := le.AppendUint32([]byte("ev1h"), uint32(len(Probes)))
	var want []int64
	for i := range Probes {
		want = append(want, int64(-i))
		b = le.AppendUint64(b, uint64(int64(-i)))
	}
	got, err := DecodeHello(b)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for name, bad := range map[string][]byte{
		"nothing": nil, "short": b[:len(b)-1], "long": append(slices.Clone(b), 0),
		"magic": flip(b, 3), "count": flip(b, 4),
	} {
		if _, err := DecodeHello(bad); err == nil {
			t.Errorf("%s: decoded", name)
		}
	}
}

func TestDecodeEnd(t *testing.T) {
	le := binary.LittleEndian
	b := []byte("ev1e")
	for _, v := range []uint32{2, 0x7f00, 3, 4} {
		b = le.AppendUint32(b, v)
	}
	got, err := DecodeEnd(b)
	if err != nil {
		t.Fatal(err)
	}
	want := End{ExecErrno: 2, WaitStatus: 0x7f00, Survivors: 3, Reaped: 4}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for name, bad := range map[string][]byte{
		"nothing": nil, "short": b[:len(b)-1], "long": append(slices.Clone(b), 0), "magic": flip(b, 0),
	} {
		if _, err := DecodeEnd(bad); err == nil {
			t.Errorf("%s: decoded", name)
		}
	}
}

func flip(b []byte, at int) []byte {
	b = slices.Clone(b)
	b[at] ^= 1
	return b
}

// Probes are what records name: each is unique, explains itself, and can fail.
func TestProbeTable(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range Probes {
		if p.Name == "" || p.Layer == "" || len(p.Want) == 0 || p.emit == nil || seen[p.Name] {
			t.Errorf("%+v", p)
		}
		seen[p.Name] = true
	}
}

func TestCallNumbers(t *testing.T) {
	made := map[string]bool{}
	for _, i := range firstProcess().code {
		if i.op == opCall {
			made[i.call] = true
		}
	}
	for name := range callNumbers {
		if !made[name] {
			t.Errorf("%s: number of a call that isn't made", name)
		}
	}
}
