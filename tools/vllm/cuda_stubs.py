#!/usr/bin/env python3
"""Build stub CUDA libraries, so that a CUDA build of torch loads on a machine without CUDA.

torch's Linux wheel names the CUDA libraries among those it needs, so the dynamic loader refuses
even its CPU part without them. For each one this writes a library with the same soname, symbols
and symbol versions (ld.so aborts without the versions). A stub answers error 100, "no device", or
a text where text is returned: torch.cuda.is_available() is then False and the CPU code runs. Put
OUT on LD_LIBRARY_PATH. Needs gcc, objdump and nm; some 750 symbols, 0.4 MB; nothing computes.
"""
import argparse
import collections
import pathlib
import re
import subprocess

NO_DEVICE = 100  # cudaErrorNoDevice

CUDA_LIBRARY = re.compile(r"lib(cu|nccl|nv)")
CUDA_SYMBOL = re.compile(r"(cuda|__cuda|cublas|cudnn|cusparse|cufft|curand|cusolver|cupti|cuFile|"
                         r"cu[A-Z]|p?nccl|nv(rtc|shmem|ml|tx|JitLink))")
RETURNS_TEXT = re.compile(r"String|ErrorName|LastError_str")

# A symbol without a version belongs to the library of its longest prefix; cudart has the rest.
LIBRARY_OF_PREFIX = {
    "cublasLt": "libcublasLt.so", "cublas": "libcublas.so", "cudnn": "libcudnn.so",
    "cusparseLt": "libcusparseLt.so", "cusparse": "libcusparse.so", "cufft": "libcufft.so",
    "curand": "libcurand.so", "cusolver": "libcusolver.so", "nccl": "libnccl.so",
    "pnccl": "libnccl.so", "nvrtc": "libnvrtc.so", "cuFile": "libcufile.so",
    "nvshmem": "libnvshmem_host.so", "nvJitLink": "libnvJitLink.so", "cupti": "libcupti.so",
}
RUNTIME = "libcudart.so"


def output_of(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def dynamic_section(library):
    """CUDA libraries that `library` needs, and the (soname, version) pairs that it asks of them."""
    needed, versions, required_from = set(), set(), ""
    for line in output_of("objdump", "-p", str(library)).splitlines():
        if m := re.match(r"\s+NEEDED\s+(\S+)", line):
            if CUDA_LIBRARY.match(m[1]):
                needed.add(m[1])
        elif m := re.match(r"\s+required from (\S+?):", line):
            required_from = m[1]
        elif m := re.match(r"\s+0x[0-9a-f]+ 0x\w+ \d+ (\S+)", line):
            if CUDA_LIBRARY.match(required_from):
                versions.add((required_from, m[1]))
    return needed, versions


def undefined_symbols(library):
    """CUDA symbols that `library` leaves to others: name -> version, or ""."""
    symbols = {}
    for line in output_of("nm", "-D", "--undefined-only", str(library)).splitlines():
        name, _, version = line.split()[-1].partition("@")
        if CUDA_SYMBOL.match(name):
            symbols[name] = version.lstrip("@")
    return symbols


def requirements(folder):
    """Of all libraries in `folder`: needed sonames, soname -> versions, symbol -> version."""
    needed, versions, symbols = set(), collections.defaultdict(set), {}
    for library in sorted(folder.glob("lib*.so*")):
        more_needed, more_versions = dynamic_section(library)
        needed |= more_needed
        for soname, version in more_versions:
            versions[soname].add(version)
        symbols |= undefined_symbols(library)
    return needed | set(versions), versions, symbols


def assign(sonames, versions, symbols):
    """Which library gets which symbols: soname -> version -> names."""
    soname_of_version = {v: soname for soname, vs in versions.items() for v in vs}

    def with_prefix(wanted):
        return next((s for s in sorted(sonames) if s.startswith(wanted)), None)

    def soname_of(name, version):
        if version in soname_of_version:
            return soname_of_version[version]
        prefix = max((p for p in LIBRARY_OF_PREFIX if name.startswith(p)), key=len, default=None)
        return with_prefix(LIBRARY_OF_PREFIX.get(prefix, RUNTIME)) or with_prefix(RUNTIME)

    plan = {soname: collections.defaultdict(list) for soname in sonames}
    for name, version in sorted(symbols.items()):
        plan[soname_of(name, version)][version].append(name)
    return plan


def source_of(names):
    lines = ['static const char text[] = "no CUDA (stub)";']
    for name in names:
        if RETURNS_TEXT.search(name):
            lines.append(f"const char *{name}(void) {{ return text; }}")
        else:
            lines.append(f"long {name}(void) {{ return {NO_DEVICE}; }}")
    return "\n".join(lines) + "\n"


def version_script(by_version, versions):
    lines = [f"{version} {{ global: {' '.join(name + ';' for name in names)} }};"
             for version, names in by_version.items() if version]
    lines += [f"{version} {{ }};" for version in sorted(versions - set(by_version))]
    return "\n".join(lines)


def build(out, soname, by_version, versions):
    source, script = out / f"{soname}.c", out / f"{soname}.map"
    source.write_text(source_of([name for names in by_version.values() for name in names]))
    script.write_text(version_script(by_version, versions))
    command = ["gcc", "-O1", "-fPIC", "-shared", "-w", f"-Wl,-soname,{soname}",
               "-o", str(out / soname), str(source)]
    if script.stat().st_size:
        command.append(f"-Wl,--version-script,{script}")
    subprocess.run(command, check=True)
    source.unlink()
    script.unlink()


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("torch_lib", type=pathlib.Path, help="the lib folder in the torch package")
    parser.add_argument("out", type=pathlib.Path, help="folder for the stubs")
    arguments = parser.parse_args()
    if not list(arguments.torch_lib.glob("libtorch*.so*")):
        parser.error(f"{arguments.torch_lib}: no libtorch*.so here; give torch's lib folder")
    sonames, versions, symbols = requirements(arguments.torch_lib)
    if not sonames:
        parser.error(f"{arguments.torch_lib}: this torch needs no CUDA libraries, and no stubs")
    arguments.out.mkdir(parents=True, exist_ok=True)
    for soname, by_version in sorted(assign(sonames, versions, symbols).items()):
        build(arguments.out, soname, by_version, versions[soname])
    print(f"{len(symbols)} symbols in {len(sonames)} stub libraries")


if __name__ == "__main__":
    main()
