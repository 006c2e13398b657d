package pid1

import (
	"bytes"
	"debug/elf"
	"flag"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the images")

func TestImages(t *testing.T) {
	for _, arch := range []string{"amd64", "arm64"} {
		want, err := generate(arch)
		if err != nil {
			t.Fatal(err)
		}
		again, err := generate(arch)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(want, again) {
			t.Errorf("%s: two generations differ", arch)
		}
		if len(want) > 4096 {
			t.Errorf("%s: %d bytes, more than a page", arch, len(want))
		}
		if *update {
			if err := os.WriteFile("pid1_"+arch+".elf", want, 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		got, err := Image(arch)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("pid1_%s.elf is not what the program gives: go generate ./sandbox/pid1", arch)
		}
	}
}

func TestLayout(t *testing.T) {
	for arch, machine := range map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64} {
		b, err := Image(arch)
		if err != nil {
			t.Fatal(err)
		}
		f, err := elf.NewFile(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		if f.Machine != machine || f.Type != elf.ET_EXEC || len(f.Sections) != 0 {
			t.Errorf("%s: %+v", arch, f.FileHeader)
		}
		var got []string
		for _, p := range f.Progs {
			got = append(got, p.Type.String()+" "+p.Flags.String())
			if p.Flags&elf.PF_W != 0 && (p.Filesz != 0 || p.Flags&elf.PF_X != 0) {
				t.Errorf("%s: writable segment %+v", arch, p.ProgHeader)
			}
			if p.Flags&elf.PF_X != 0 && (p.Filesz != uint64(len(b)) || f.Entry < p.Vaddr+headerSize || f.Entry >= p.Vaddr+p.Filesz) {
				t.Errorf("%s: entry %#x, segment %+v of %d bytes", arch, f.Entry, p.ProgHeader, len(b))
			}
		}
		want := []string{"PT_LOAD PF_X+PF_R", "PT_LOAD PF_W+PF_R", "PT_GNU_STACK PF_W+PF_R"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: segments (-want +got):\n%s", arch, diff)
		}
	}
	if _, err := Image("riscv64"); err == nil {
		t.Error("an image for riscv64")
	}
}

// The harness may alter what it was given.
func TestImageIsACopy(t *testing.T) {
	a, _ := Image("amd64")
	clear(a)
	if b, _ := Image("amd64"); !bytes.HasPrefix(b, []byte("\x7fELF")) {
		t.Error("Image returned shared memory")
	}
}
