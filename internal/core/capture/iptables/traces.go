//go:build linux

package iptables

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"outrider.dev/internal/core/capture"
	"outrider.dev/internal/core/capture/nftables"
)

// nftPlaces returns the places of the nft variant that contain chains of ours, in the network
// namespace of the calling thread.
func nftPlaces() (out []place, err error) {
	b, err := nftables.Open()
	if err != nil {
		return nil, err
	}
	defer b.Close()
	for _, family := range families {
		has, err := b.HasChains(family, prefix)
		if err != nil {
			return nil, err
		}
		if has {
			out = append(out, place{nft, family})
		}
	}
	return out, nil
}

// legacyPlaces does the same as nftPlaces for the legacy variant.
func legacyPlaces() (out []place, err error) {
	for _, family := range families {
		names, err := legacyTables(family)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			entries, err := legacyEntries(family, name)
			if err != nil {
				return nil, fmt.Errorf("reading the legacy table %s of %s: %w", name, family, err)
			}
			if hasChains(entries) {
				out = append(out, place{legacy, family})
				break
			}
		}
	}
	return out, nil
}

// legacyTables lists the existing tables among those that we write.
func legacyTables(family capture.Families) ([]string, error) {
	names, err := allLegacyTables(family)
	return slices.DeleteFunc(names, func(name string) bool { return !slices.Contains(tables, capture.Table(name)) }), err
}

func allLegacyTables(family capture.Families) ([]string, error) {
	text, err := os.ReadFile(legacyNames[family])
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // without the module there are no tables
		return nil, fmt.Errorf("listing legacy tables: %w (it takes root)", err)
	}
	return strings.Fields(string(text)), nil
}

// LegacyOthers returns the tables of iptables-legacy in the network namespace of the calling thread that may be of other
// programs, for people. If our rules may be in tables of iptables, as shared says, it skips those that we write.
func LegacyOthers(shared bool) (out []string) {
	for _, family := range families {
		names, _ := allLegacyTables(family) // none, if they cannot be listed
		for _, name := range names {
			if !shared || !slices.Contains(tables, capture.Table(name)) {
				out = append(out, fmt.Sprintf("%s of iptables-legacy, %s", name, family))
			}
		}
	}
	return out
}

// chainMark is the beginning of one of our chains in a table: the target's name ERROR in 29 bytes, its revision, and
// the start of the chain's name (struct xt_error_target in linux/netfilter/x_tables.h).
var chainMark = []byte("ERROR" + strings.Repeat("\x00", 29-len("ERROR")+1) + prefix)

func hasChains(entries []byte) bool { return bytes.Contains(entries, chainMark) }

// struct ipt_getinfo and struct ipt_get_entries of linux/netfilter_ipv4/ip_tables.h. Those for IPv6
// have the same layout.
type (
	tableInfo struct {
		name    [32]byte
		_       [11]uint32 // hooks
		entries uint32
		size    uint32
	}
	tableHead struct {
		name [32]byte
		size uint32
		_    uint32 // entries are aligned to 8 bytes
	}
)

const (
	getInfo    = 64 // IPT_SO_GET_INFO, IP6T_SO_GET_INFO
	getEntries = 65 // IPT_SO_GET_ENTRIES, IP6T_SO_GET_ENTRIES
)

// maxTable bounds the bytes that are read of a table: 10,000 rules take 4 MB.
const maxTable = 256 << 20

// tableTries bounds the attempts to read a table that another program changes meanwhile.
const tableTries = 10

const headLen = int(unsafe.Sizeof(tableHead{}))

// legacyEntries reads a table in the kernel's binary form.
func legacyEntries(family capture.Families, table string) (entries []byte, err error) {
	fd, level, err := legacySocket(family)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	for range tableTries {
		info, err := tableInfoOf(fd, level, table)
		if err != nil {
			return nil, err
		}
		if info.size > maxTable {
			return nil, fmt.Errorf("it has %d bytes", info.size)
		}
		entries, err := readEntries(fd, level, info, make([]byte, headLen+int(info.size)))
		if !errors.Is(err, unix.EAGAIN) {
			return entries, err
		}
	}
	return nil, errors.New("another program changes it all the time")
}

// legacySocket opens a socket whose options, at the returned level, are the legacy tables of a family.
func legacySocket(family capture.Families) (fd, level int, err error) {
	domain, level := unix.AF_INET, unix.SOL_IP
	if family == capture.IPv6 {
		domain, level = unix.AF_INET6, unix.SOL_IPV6
	}
	fd, err = unix.Socket(domain, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	return fd, level, err
}

func tableInfoOf(fd, level int, table string) (tableInfo, error) {
	var info tableInfo
	copy(info.name[:len(info.name)-1], table)
	err := getOption(fd, level, getInfo, unsafe.Pointer(&info), unsafe.Sizeof(info))
	return info, err
}

// readEntries reads a table into buf, which must have headLen bytes more. EAGAIN: the table's size has changed.
func readEntries(fd, level int, info tableInfo, buf []byte) ([]byte, error) {
	head := tableHead{name: info.name, size: info.size}
	copy(buf, unsafe.Slice((*byte)(unsafe.Pointer(&head)), headLen))
	err := getOption(fd, level, getEntries, unsafe.Pointer(&buf[0]), uintptr(len(buf)))
	return buf[headLen:], err
}

func getOption(fd, level, name int, value unsafe.Pointer, size uintptr) error {
	length := uint32(size)
	_, _, errno := syscall.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), uintptr(level), uintptr(name),
		uintptr(value), uintptr(unsafe.Pointer(&length)), 0)
	runtime.KeepAlive(value)
	switch errno {
	case 0:
		return nil
	case unix.EPERM:
		return fmt.Errorf("%w (it takes the capability NET_ADMIN)", errno)
	}
	return errno
}
