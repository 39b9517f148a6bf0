import{b as r}from"./chunk-LUXQ656N.js";import{m18 as e}from"./core-VFXIHOEX.js";var o=e.default;function u({params:t}){return r(o,{run:t.run})}export{u as default};
