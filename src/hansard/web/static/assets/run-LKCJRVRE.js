import{b as r}from"./chunk-QQZCRIJC.js";import{m18 as e}from"./core-NRRD4TNC.js";var o=e.default;function u({params:t}){return r(o,{run:t.run})}export{u as default};
