package sandbox

import (
	"slices"
	"strconv"
	"strings"
)

// rooted puts the folder that stands for the root in the place of each mark.
func rooted(in []string, root string) []string {
	out := make([]string, len(in))
	for i, s := range in {
		out[i] = strings.ReplaceAll(s, RootMark, root)
	}
	return out
}

// environment is the exact environment of the target: what the spec names, and
// where it names nothing, values that are the same on every machine.
func environment(s *Spec) []string {
	fixed := []string{
		"HOME=" + RootMark + HomeDir,
		"LANG=C.UTF-8",
		"PATH=/usr/local/bin:/usr/bin:/bin",
		"TMPDIR=" + RootMark + TempDir,
		"TZ=UTC",
	}
	if len(s.Policy.Network) > 0 {
		proxy := "http://127.0.0.1:" + strconv.Itoa(ProxyPort)
		for _, name := range []string{"HTTPS_PROXY", "HTTP_PROXY", "https_proxy", "http_proxy"} {
			fixed = append(fixed, name+"="+proxy)
		}
		for _, name := range []string{"NO_PROXY", "no_proxy"} {
			fixed = append(fixed, name+"=localhost,127.0.0.1")
		}
	}
	out := slices.Clone(s.Env)
	for _, f := range fixed {
		name := f[:strings.IndexByte(f, '=')+1]
		if !slices.ContainsFunc(out, func(e string) bool { return strings.HasPrefix(e, name) }) {
			out = append(out, f)
		}
	}
	slices.Sort(out)
	return out
}
