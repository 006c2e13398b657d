package egress

import "net/netip"

// forbidden are the addresses that no allowed name may have: all that reach
// this machine, its network or its cloud, that carry another address inside,
// or that nobody owns. Sources: the special-purpose registries of IANA (RFC
// 6890 and successors) unless said. IPv6 outside of 2000::/3 is refused as a
// whole (public); its rows are here to say why, and stand if IANA opens more.
var forbidden = []struct{ prefix, what string }{
	{"0.0.0.0/8", "this network; Linux takes 0.0.0.0 for loopback"},
	{"10.0.0.0/8", "private"},
	{"100.64.0.0/10", "shared by carriers and VPNs; Alibaba's metadata, 100.100.100.200"},
	{"127.0.0.0/8", "loopback"},
	{"168.63.129.16/32", "Azure's host, a public address that answers inside only"},
	{"169.254.0.0/16", "link-local; the metadata of most clouds, 169.254.169.254"},
	{"172.16.0.0/12", "private"},
	{"192.0.0.0/24", "protocol assignments; Oracle's metadata, 192.0.0.192"},
	{"192.0.2.0/24", "documentation"},
	{"192.88.99.0/24", "6to4 relays"},
	{"192.168.0.0/16", "private"},
	{"198.18.0.0/15", "benchmarking"},
	{"198.51.100.0/24", "documentation"},
	{"203.0.113.0/24", "documentation"},
	{"224.0.0.0/4", "multicast"},
	{"240.0.0.0/4", "reserved; broadcast"},

	{"::/96", "unspecified, loopback, IPv4-compatible"},
	{"::ffff:0:0:0/96", "IPv4-translated (RFC 2765)"},
	{"64:ff9b::/96", "NAT64"},
	{"64:ff9b:1::/48", "NAT64, local"},
	{"100::/64", "discard"},
	{"100:0:0:1::/64", "dummy"},
	{"2001::/23", "protocol assignments: Teredo 2001::/32, benchmarking 2001:2::/48, ORCHID"},
	{"2001:db8::/32", "documentation"},
	{"2002::/16", "6to4"},
	{"3ffe::/16", "6bone, given back"},
	{"3fff::/20", "documentation"},
	{"5f00::/16", "segment routing"},
	{"fc00::/7", "unique local; Amazon's metadata, fd00:ec2::254"},
	{"fe80::/10", "link-local"},
	{"fec0::/10", "site-local (RFC 3879)"},
	{"ff00::/8", "multicast"},
}

var (
	forbiddenPrefixes = func() (list []netip.Prefix) {
		for _, f := range forbidden {
			list = append(list, netip.MustParsePrefix(f.prefix))
		}
		return list
	}()
	globalUnicast = netip.MustParsePrefix("2000::/3")
)

// public says whether an allowed name may have the address. IPv4-mapped IPv6
// must be unmapped before: net.Resolver gives every IPv4 address in that form,
// so it can't be refused as such; it is judged and dialled as IPv4.
func public(a netip.Addr) bool {
	if !a.IsValid() || a.Zone() != "" || a.Is4In6() {
		return false
	}
	for _, p := range forbiddenPrefixes {
		if p.Contains(a) {
			return false
		}
	}
	return a.Is4() || globalUnicast.Contains(a) && !isatap(a)
}

// isatap says whether the interface identifier carries an IPv4 address (RFC
// 5214): below any prefix, so it isn't a row of the table.
func isatap(a netip.Addr) bool {
	b := a.As16()
	return b[8]&^2 == 0 && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe
}
