package pid1

import (
	_ "embed"
	"fmt"
)

//go:embed pid1_amd64.elf
var imageAMD64 string

//go:embed pid1_arm64.elf
var imageARM64 string

// Image returns the ELF file of PID 1 for a GOARCH, "amd64" or "arm64".
func Image(arch string) ([]byte, error) {
	switch arch {
	case "amd64":
		return []byte(imageAMD64), nil
	case "arm64":
		return []byte(imageARM64), nil
	}
	return nil, fmt.Errorf("pid1 image for %s: there are only amd64 and arm64", arch)
}

// generate makes what Image returns from the program.
func generate(arch string) ([]byte, error) {
	be := map[string]*backend{"amd64": amd64, "arm64": arm64}[arch]
	if be == nil {
		return nil, fmt.Errorf("pid1 image for %s: no back end", arch)
	}
	return image(firstProcess(), be)
}
