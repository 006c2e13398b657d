package seatbelt

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/workspace/graph"
)

// Params is what a profile follows from. All paths are resolved.
type Params struct {
	Policy  graph.Policy
	Mounts  []graph.Mount
	Root    string // the staging folder
	Scratch string // the folder that can be written; in Root or beside it
	// ProxyPort is the port on loopback of the egress proxy, 0 for none. A
	// policy with a network needs one; one without may have one, which refuses.
	ProxyPort int
	// ForwardPorts are the ports on loopback where the harness listens for
	// Policy.Forward, in its order.
	ForwardPorts []int
}

// Profile renders p. An error says what in p can't be sealed; the profile is
// then empty, which allows nothing: sandbox-exec refuses it.
func Profile(p Params) (string, error) {
	if err := p.check(); err != nil {
		return "", fmt.Errorf("render a seatbelt profile: %w", err)
	}
	var b strings.Builder
	// no-log: what a run is denied is no entry in the host's log.
	b.WriteString("(version 1)\n(deny default (with no-log))\n")
	for _, r := range system {
		b.WriteString("\n; " + r.why + "\n")
		allow(&b, r.ops, r.filters)
	}
	for _, s := range sysctls {
		b.WriteString("\n; " + s.why + "\n")
		allow(&b, "sysctl-read", sysctlFilters(s.names))
	}
	g := p.grants()
	b.WriteString("\n; declared: files and folders of mounts, and the staging folder that leads to them\n")
	allow(&b, "file-read*", g.read)
	if len(g.mapped) > 0 {
		b.WriteString("\n; declared: may hold libraries, where they are and where they are staged\n")
		allow(&b, "file-map-executable", g.mapped)
	}
	if len(g.exec) > 0 {
		b.WriteString("\n; declared: programs, where they are and where they are staged\n")
		allow(&b, "process-exec*", g.exec)
	}
	b.WriteString("\n; realpath and getcwd look at each folder on the way, not into it\n")
	allow(&b, "file-read-metadata", p.ancestors())
	b.WriteString("\n; the scratch folder\n")
	allow(&b, "file-read* file-write*", []string{subpath(p.Scratch)})
	if ports := p.ports(); len(ports) > 0 {
		b.WriteString("\n; the egress proxy and forwards; nothing else of loopback, which is the host's\n")
		allow(&b, "network-outbound", ports)
	}
	b.WriteString("\n; the last rule that fits counts: the scratch folder stays where it is, nothing gets a second\n" +
		"; name (a link could take a file past rules for paths) or a set-id bit\n")
	b.WriteString("(deny file-write-unlink " + literal(p.Scratch) + " (with no-log))\n" +
		"(deny file-link (with no-log))\n(deny file-write-setugid (with no-log))\n")
	return b.String(), nil
}

// allow writes one rule, a filter a line.
func allow(b *strings.Builder, ops string, filters []string) {
	b.WriteString("(allow " + ops)
	for _, f := range filters {
		b.WriteString("\n  " + f)
	}
	b.WriteString(")\n")
}

func sysctlFilters(names []string) []string {
	var filters []string
	for _, n := range names {
		kind := "sysctl-name"
		if prefix, ok := strings.CutSuffix(n, "*"); ok {
			kind, n = "sysctl-name-prefix", prefix
		}
		filters = append(filters, filter(kind, n))
	}
	return filters
}

func (p *Params) check() error {
	if p.Policy.Unsealed {
		return errors.New("the policy is to have no seal")
	}
	for _, f := range []struct{ what, path string }{{"staging folder", p.Root}, {"scratch folder", p.Scratch}} {
		if err := checkPath(f.path); err != nil {
			return fmt.Errorf("%s %q: %w", f.what, f.path, err)
		}
	}
	if within(p.Root, p.Scratch) {
		return errors.New("the staging folder is in the scratch folder, where it could be written")
	}
	for _, m := range p.Mounts {
		if err := p.checkMount(m); err != nil {
			return fmt.Errorf("mount %q from %q: %w", m.Path, m.Source, err)
		}
	}
	return p.checkPorts()
}

func (p *Params) checkMount(m graph.Mount) error {
	if !path.IsAbs(m.Path) || path.Clean(m.Path) != m.Path || m.Path == "/" {
		return errors.New("the path inside isn't an absolute and clean one below the root")
	}
	if _, err := quote(m.Path); err != nil {
		return err
	}
	if staged := p.Root + m.Path; within(staged, p.Scratch) || within(p.Scratch, staged) {
		return errors.New("it is staged in the scratch folder, where it could be written, or the reverse")
	}
	if m.Link != "" {
		return nil // it grants nothing: rules are for where it leads
	}
	if err := checkPath(m.Source); err != nil {
		return err
	}
	switch {
	case within(m.Source, p.Scratch):
		return errors.New("it is in the scratch folder, where it could be written")
	case within(p.Scratch, m.Source), within(p.Root, m.Source):
		return errors.New("the scratch or staging folder is in it, and so those of others may be")
	}
	if m.Tree == nil {
		return nil
	}
	return m.Tree.Walk(func(name string, f cas.FileNode) error {
		if _, err := quote(name); f.Executable && err != nil {
			return fmt.Errorf("program %q: %w", name, err)
		}
		return nil
	})
}

func (p *Params) checkPorts() error {
	if len(p.Policy.Network) > 0 && p.ProxyPort == 0 {
		return errors.New("the policy has a network and no port of a proxy is given")
	}
	if len(p.ForwardPorts) != len(p.Policy.Forward) {
		return fmt.Errorf("%d ports for %d forwards", len(p.ForwardPorts), len(p.Policy.Forward))
	}
	for _, port := range p.ForwardPorts {
		if port < 1 || port > 65535 {
			return fmt.Errorf("forward: %d is no port", port)
		}
	}
	if p.ProxyPort < 0 || p.ProxyPort > 65535 {
		return fmt.Errorf("proxy: %d is no port", p.ProxyPort)
	}
	return nil
}

// grants are the filters of what can be read, mapped as code and executed.
type grants struct{ read, mapped, exec []string }

// grants follows from the mounts. A library or program has two paths, since the
// kernel looks at where it really is: at its source if it was staged as a link,
// else in the staging folder. That one isn't granted whole, but for reading:
// the scratch folder may be in it.
func (p *Params) grants() grants {
	read, mapped, exec := map[string]bool{subpath(p.Root): true}, map[string]bool{}, map[string]bool{}
	for _, m := range p.Mounts {
		if m.Link != "" {
			continue
		}
		staged, grant := p.Root+m.Path, literal
		if m.Tree != nil {
			grant = subpath
		}
		read[grant(m.Source)], mapped[grant(m.Source)], mapped[grant(staged)] = true, true, true
		if m.Tree == nil {
			if m.Executable {
				exec[literal(m.Source)], exec[literal(staged)] = true, true
			}
			continue
		}
		_ = m.Tree.Walk(func(name string, f cas.FileNode) error {
			if f.Executable {
				exec[literal(path.Join(m.Source, name))], exec[literal(path.Join(staged, name))] = true, true
			}
			return nil
		})
	}
	sorted := func(set map[string]bool) []string { return slices.Sorted(maps.Keys(set)) }
	return grants{sorted(read), sorted(mapped), sorted(exec)}
}

// ancestors gives a filter for each folder above a path that is granted.
func (p *Params) ancestors() []string {
	above := map[string]bool{}
	up := func(file string) {
		for d := path.Dir(file); d != "/"; d = path.Dir(d) {
			above[literal(d)] = true
		}
	}
	up(p.Root)
	up(p.Scratch)
	for _, m := range p.Mounts {
		if m.Link == "" {
			up(m.Source)
		}
	}
	return slices.Sorted(maps.Keys(above))
}

// ports gives a filter for each port that can be connected to: TCP alone, a
// proxy needs no more.
func (p *Params) ports() []string {
	ports := slices.Clone(p.ForwardPorts)
	if p.ProxyPort != 0 {
		ports = append(ports, p.ProxyPort)
	}
	slices.Sort(ports)
	var filters []string
	for _, port := range slices.Compact(ports) {
		filters = append(filters, fmt.Sprintf(`(remote tcp "localhost:%d")`, port))
	}
	return filters
}
