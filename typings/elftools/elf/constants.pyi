class SH_FLAGS:
    SHF_WRITE: int
    SHF_ALLOC: int
    SHF_EXECINSTR: int
